"""Merging folders of runs: every run once, in one folder. A run that is there already stays as it is.

All runs are compared before anything is written. Every file is written whole, weights before their run. So a merge that was
interrupted has lost nothing, and the same command completes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lgbench.atomic_files import created
from lgbench.errors import Refused, RunFileError, UsageError
from lgbench.results import run_files, weights_files
from lgbench.results.checked_files import content_of
from lgbench.results.same_runs import compared
from lgbench.results.weights_files import KeptWeights, kept_by

Say = Callable[[str], None]

PARTS = ("", run_files.TUNING)
"""The folders of a results folder that have runs."""


@dataclass(frozen=True)
class Found:
    """A run in a file."""

    path: Path
    run_id: str
    footer: dict[str, Any] = field(repr=False)
    packed: bool
    """Whether the file is a submission file, with other runs."""

    @property
    def where(self) -> str:
        return f"{self.path}, run {self.run_id}" if self.packed else str(self.path)

    @property
    def rows(self) -> pa.Table:
        """Its rows, read anew: a merge of many runs keeps those of none."""
        if not self.packed:
            return run_files.read(self.path)
        rows = _of_submission(self.path, self.path.stat().st_mtime_ns)
        return rows.filter(pc.equal(rows["run_id"], self.run_id))

    @property
    def kept(self) -> KeptWeights | None:
        return kept_by(self.footer)

    @property
    def name(self) -> str:
        """The name of its run file. Raises RunFileError where the footer names none."""
        try:
            about = self.footer["experiment"]
            name = f"{about['task']}.{about['entry']}.seed-{about['seed']}.{self.run_id}.parquet"
        except (KeyError, TypeError):
            name = ""
        if not name or "/" in name or "\\" in name or name.startswith("."):
            raise RunFileError(f"{self.where} does not say which run it is of")
        return name

    def content(self) -> bytes:
        """The bytes of its run file."""
        return run_files.serialized(self.rows, self.footer) if self.packed else content_of(self.path)

    def weights(self) -> tuple[str, bytes] | None:
        """Name and content of its weights; None if it kept none. Raises RunFileError where they are missing or damaged."""
        if (kept := self.kept) is None:
            return None
        name = weights_files.name_of(self.name, kept)
        return name, weights_files.read(self.path.with_name(name), kept)


@lru_cache(maxsize=2)
def _of_submission(path: Path, changed: int) -> pa.Table:
    """The rows of a submission file, which are asked for once for each of its runs. Two files may have the same runs."""
    return run_files.read(path)


@dataclass
class Merged:
    """The outcome of a merge."""

    written: int = 0
    there: int = 0
    """Runs that were there already."""
    weights: int = 0
    left_out: list[str] = field(default_factory=list)
    """A sentence for each file that is not merged, since it is damaged or missing."""


def merge(folders: Sequence[Path], to: Path, say: Say) -> Merged:
    """Bring every run of these folders to another one. The same run twice is one. Calls `say` with sentences for the user.

    Raises Refused, before anything is written, with a sentence for each run that has different numbers in two files, and
    UsageError for a folder without runs.
    """
    done, wrong, notes = Merged(), list[str](), list[str]()
    sources = [each for each in dict.fromkeys(folder.resolve() for folder in folders) if each != to.resolve()]
    found = {(folder, part): list(_found(folder / part, done.left_out)) for folder in sources for part in PARTS}
    for folder in sources:
        if not any(found[folder, part] for part in PARTS):
            raise UsageError(f"no run is in {folder}; name a folder in which `lgbench run` wrote results")
    chosen: dict[str, list[Found]] = {}
    for part in PARTS:
        there = {run.run_id: run for run in _found(to / part, notes)}
        by_id: dict[str, list[Found]] = defaultdict(list)
        for folder in sources:
            for run in found[folder, part]:
                by_id[run.run_id].append(run)
        done.there += len(by_id.keys() & there.keys())
        best = [_best(runs, there.get(run_id), wrong, notes) for run_id, runs in by_id.items()]
        chosen[part] = [run for run in best if run.run_id not in there]
    if wrong:
        count = "1 run" if len(wrong) == 1 else f"{len(wrong)} runs"
        raise Refused(wrong, f"nothing was written, since the files of {count} contradict each other; keep one file of each:")
    for sentence in notes:
        say(sentence)
    for part, runs in chosen.items():
        _write(runs, to / part, done, say)
    return done


def _found(folder: Path, left_out: list[str]) -> Iterator[Found]:
    """The runs of a folder. Files that are no run files get a sentence."""
    for path in run_files.find(folder):
        try:
            footers, packed = run_files.footers(path), run_files.is_submission(path)
            runs = [Found(path, run_id, footer, packed) for run_id, footer in footers.items()]
            for run in runs:
                run.name  # noqa: B018  # it must have one
        except RunFileError as error:
            left_out.append(str(error))
        else:
            yield from runs


def _best(runs: Sequence[Found], there: Found | None, wrong: list[str], notes: list[str]) -> Found:
    """The file of a run that is taken: the one that is there already, or the one that has most. All must agree with it."""
    every = [there, *runs] if there else runs
    if len(every) == 1:
        return every[0]
    rows = {run.where: run.rows for run in every}
    best = there or max(runs, key=lambda run: (run.kept is not None, rows[run.where].num_rows))
    for other in every:
        if other is best or rows[other.where].equals(rows[best.where]):
            more = []
        elif (found := compared(rows[best.where], rows[other.where])).different:
            wrong.append(f"{best.where} and {other.where}: {found.different}")
            continue
        else:
            more = [f"{found.first_lacks} numbers"] if found.first_lacks else []
        if other.kept and not best.kept:
            more.append("kept weights")
        if more and there:
            notes.append(f"{other.where} has {' and '.join(more)} more than {best.where}, which stays as it is")
        elif more:
            wrong.append(f"{best.where} and {other.where}: neither has all that the other has")
    return best


def _write(runs: Sequence[Found], to: Path, done: Merged, say: Say) -> None:
    """Write runs that are not there yet, each after its weights."""
    if not runs:
        return
    to.mkdir(parents=True, exist_ok=True)
    for run in runs:
        content = run.content()
        try:
            weights = run.weights()
        except RunFileError as error:
            weights = None
            done.left_out.append(f"{error}; the run is merged without them")
        if weights:
            name, content_of_weights = weights
            weights_files.write(to / name, content_of_weights)
            done.weights += 1
        path = to / run.name
        if said := run_files.make_room(path, run.run_id):
            say(said)
        with created(path) as partial:
            partial.write_bytes(content)
        done.written += 1
