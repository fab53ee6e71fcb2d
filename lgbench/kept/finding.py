"""Finding a run and its kept weights: by its file, by an address, or by its id in a folder of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lgbench.errors import RunFileError, UsageError, unknown
from lgbench.results import run_files, weights_files
from lgbench.results.addresses import Address, Place, place
from lgbench.results.mirror import fetched, fetched_file, place_of
from lgbench.submissions.footer import Footer, parse
from lgbench.submissions.inspection import Run

RUN_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class FoundRun:
    """A run by its footer, and where its weights are."""

    path: Path
    """Of the run file or submission file that it is in, on this machine."""
    where: str
    """For messages."""
    footer: Footer
    origin: Address | None = None
    """The address that the file is a copy from."""

    @classmethod
    def of(cls, run: Run, given: Iterable[Place]) -> FoundRun:
        """A run that was inspected, at one of the places that somebody named."""
        return cls(run.path, run.where, run.footer, origin_of(run.path, given))

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
        if self.origin:
            path = fetched_file(self.origin, self.path.relative_to(place_of(self.origin)).with_name(name).as_posix())
        else:
            path = self.path.with_name(name)
        return weights_files.read(path, kept)


def origin_of(path: Path, given: Iterable[Place]) -> Address | None:
    """The one of these addresses whose copy a file is in; None for a file of this machine alone."""
    folders = [(each.folder if each.is_file else each) for each in given if isinstance(each, Address)]
    return next((folder for folder in folders if path.is_relative_to(place_of(folder))), None)


def weights_of(run: Run, given: Iterable[Place]) -> bytes:
    """The weights of a run that was inspected, at one of the places that somebody named. Raises as `FoundRun.content`."""
    return FoundRun.of(run, given).content()


def find(run: str | Place, results: str | Place) -> FoundRun:
    """A run by its file or address, by a folder that has it alone, or by its id in `results`.

    Raises UsageError where no such run is there, or several are, and RunFileError where its file is damaged.
    """
    named = str(run)
    if RUN_ID.fullmatch(named) and not Path(named).exists():
        folder = place(results)
        every = [each for each in _in_folder(folder, named) if each.footer.experiment.run_id == named]
        if not every:
            raise UsageError(f"no run {named} in {folder}; name the run's file, or the folder that has it")
        return every[0]
    where = place(run)
    local = fetched(where) if isinstance(where, Address) else where
    if not local.exists():
        raise UsageError(f"no run file {named!r}: name one that `lgbench run --keep-weights` wrote, or a run's id of 16 digits")
    origin = (where.folder if where.is_file else where) if isinstance(where, Address) else None
    paths = [*run_files.find(local)] if local.is_dir() else [local]
    every = [each for path in paths for each in _runs(path, origin)]
    if len(every) != 1:
        first = every[0].footer.experiment.run_id if every else ""
        how = f"name one by its file, or by its id, such as {first}, with this as the results folder"
        raise UsageError(
            f"{named} has {len(every)} runs: {how}" if every else f"no run file is in {named}; name a run's file, or its id"
        )
    return every[0]


def _in_folder(folder: Place, run_id: str) -> Iterator[FoundRun]:
    """The runs of a folder that may have this id. The names of most files tell; of the others, those that are whole."""
    local = fetched(folder) if isinstance(folder, Address) else folder
    origin = folder if isinstance(folder, Address) else None
    if not local.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r} in which the run {run_id} could be; name the folder that has it")
    paths = [*run_files.find(local)]
    named = [path for path in paths if path.name.endswith(f".{run_id}.parquet")]
    for path in named:
        yield from _runs(path, origin)
    for path in [] if named else [path for path in paths if not _NAMED_BY_RUN.fullmatch(path.name)]:
        with suppress(RunFileError):  # which has nothing to do with this run
            yield from _runs(path, origin)


_NAMED_BY_RUN = re.compile(rf".*\.seed-\d+\.{RUN_ID.pattern}\.parquet", re.DOTALL)


def _runs(path: Path, origin: Address | None) -> Iterator[FoundRun]:
    """The runs of a run file or a submission file."""
    footers = run_files.footers(path)
    for about in footers.values():
        try:
            footer = parse(json.dumps(about).encode())
        except ValueError as error:
            raise RunFileError(f"{path}: in its footer, {error}") from error
        name = run_files.run_name(footer.experiment)
        yield FoundRun(path, str(path) if len(footers) == 1 else f"{path}, run {name}", footer, origin)
