"""Finding a run and its kept weights: by its file, or by its id in a folder of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lgbench.errors import RunFileError, UsageError, unknown
from lgbench.results import run_files, weights_files
from lgbench.submissions.footer import Footer, parse
from lgbench.submissions.inspection import Run

RUN_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class FoundRun:
    """A run by its footer, and where its weights are."""

    path: Path
    """Run file or submission file."""
    where: str
    """For messages."""
    footer: Footer

    @classmethod
    def of(cls, run: Run) -> FoundRun:
        """The same of a run that was inspected."""
        return cls(run.path, run.where, run.footer)

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its weights."""
        return ("raw", *self.footer.experiment.averagers)

    def require_variant(self, weights: str) -> None:
        """Raise UsageError where it has no weights of this name."""
        if weights not in self.variants:
            raise unknown("weights", weights, self.variants)

    def content(self) -> bytes:
        """The file of its weights. Raises RunFileError where there is none, or not the one that the run kept."""
        kept = self.footer.kept_weights
        if self.footer.external:
            raise RunFileError(f"{self.where} has no weights: lgbench did not train its model")
        if kept is None:
            raise RunFileError(f"{self.where} kept no weights; make the run with --keep-weights, in a folder that lacks it")
        name = weights_files.name_for(self.footer.experiment, kept)
        return weights_files.read(self.path.with_name(name), kept)


def weights_of(run: Run) -> bytes:
    """Content of the weights file of an inspected run. Raises as `FoundRun.content`."""
    return FoundRun.of(run).content()


def find(run: str | Path, results: str | Path) -> FoundRun:
    """A run by its file, by a folder that has it alone, or by its id in `results`.

    Raises UsageError where no such run is there, or several are, and RunFileError where its file is damaged.
    """
    named = str(run)
    if RUN_ID.fullmatch(named) and not Path(named).exists():
        every = [each for each in _in_folder(Path(results), named) if each.footer.experiment.run_id == named]
        if not every:
            raise UsageError(f"no run {named} in {results}; name the run's file, or the folder that has it")
        return every[0]
    path = Path(run)
    if not path.exists():
        raise UsageError(f"no run file {named!r}: name one that `lgbench run --keep-weights` wrote, or a run's id of 16 digits")
    files = [*run_files.find(path)] if path.is_dir() else [path]
    every = [each for file in files for each in _runs(file)]
    if len(every) != 1:
        first = every[0].footer.experiment.run_id if every else ""
        how = f"name one by its file, or by its id, such as {first}, with this as the results folder"
        raise UsageError(
            f"{named} has {len(every)} runs: {how}" if every else f"no run file is in {named}; name a run's file, or its id"
        )
    return every[0]


def _in_folder(folder: Path, run_id: str) -> Iterator[FoundRun]:
    """The runs of a folder that may have this id. The names of most files tell; of the others, those that are whole."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r} in which the run {run_id} could be; name the folder that has it")
    paths = [*run_files.find(folder)]
    named = [path for path in paths if path.name.endswith(f".{run_id}.parquet")]
    for path in named:
        yield from _runs(path)
    for path in [] if named else [path for path in paths if not _NAMED_BY_RUN.fullmatch(path.name)]:
        with suppress(RunFileError):  # which has nothing to do with this run
            yield from _runs(path)


_NAMED_BY_RUN = re.compile(rf".*\.seed-\d+\.{RUN_ID.pattern}\.parquet", re.DOTALL)


def _runs(path: Path) -> Iterator[FoundRun]:
    """The runs of a run file or a submission file."""
    footers = run_files.footers(path)
    for about in footers.values():
        try:
            footer = parse(json.dumps(about).encode())
        except ValueError as error:
            raise RunFileError(f"{path}: in its footer, {error}") from error
        name = run_files.run_name(footer.experiment)
        yield FoundRun(path, str(path) if len(footers) == 1 else f"{path}, run {name}", footer)
