"""Merging folders of runs: copies of the run files that a folder lacks. A run in both places is compared and stays as it is.

Every file is written whole, weights before their run: after an interruption the same command completes the merge.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from lgbench.atomic_files import created
from lgbench.errors import RunFileError, UsageError
from lgbench.results import run_files
from lgbench.results.file_format import Number, PackedRun, numbers_in
from lgbench.results.run_files import SavedWeights, saved_by

PARTS = ("", run_files.TUNING)
"""Folders with runs in a results folder."""


@dataclass(frozen=True)
class RunInFile:
    """A run in a run file or a submission file."""

    path: Path
    run: PackedRun

    @property
    def where(self) -> str:
        """File and run, for messages."""
        return f"{self.path}, run {self.run.run_id}" if self.run.content else str(self.path)

    @property
    def name(self) -> str:
        """Name of the run file."""
        about = self.run.metadata["experiment"]
        # The last part alone: nothing is written outside the folder, whatever the metadata say.
        return Path(f"{about['task']}.{about['entry']}.seed-{about['seed']}.{self.run.run_id}.parquet").name

    @property
    def saved(self) -> SavedWeights | None:
        """Saved weights, by the metadata."""
        return saved_by(self.run.metadata)

    def rows(self) -> pa.Table:
        """Rows, read from the file each time: all runs of a merge may exceed the memory."""
        return _tables(self.path)[self.run.run_id]

    def content(self) -> bytes:
        """Bytes of the run file."""
        return run_files.serialized(self.rows(), self.run.metadata) if self.run.content else self.path.read_bytes()


@lru_cache(maxsize=2)  # the runs of a submission file ask for the same rows, one after the other
def _tables(path: Path) -> dict[str, pa.Table]:
    return {run.run_id: rows for run, rows in run_files.checked(path).tables()}


@dataclass
class Merged:
    """Outcome of a merge."""

    written: int = 0
    equal: int = 0
    """Runs already in the folder, with the same numbers."""
    weights: int = 0
    different: list[str] = field(default_factory=list)
    """A sentence for each file with other numbers than another file of its run."""
    left_out: list[str] = field(default_factory=list)
    """A sentence for each damaged or missing file."""


def merge(folders: Sequence[Path], to: Path) -> Merged:
    """Copy missing runs from folders to another folder. Raises UsageError for a folder without runs, or an unwritable one."""
    done = Merged()
    sources = [each for each in dict.fromkeys(folder.resolve() for folder in folders) if each != to.resolve()]
    found: dict[str, dict[str, list[RunInFile]]] = {part: defaultdict(list) for part in PARTS}
    for folder in sources:
        own = [(part, run) for part in PARTS for run in _found(folder / part, done.left_out)]
        if not own:
            raise UsageError(f"no run is in {folder}; name a folder in which `lgbench run` wrote results")
        for part, each in own:
            found[part][each.run.run_id].append(each)
    run_files.require_writable(to)
    for part, by_id in found.items():
        there = {each.run.run_id: each for each in _found(to / part, done.left_out)}
        for run_id, runs in by_id.items():
            runs.sort(key=lambda own: (own.saved is None, -own.run.rows))  # a file with weights first, or with most numbers
            first, others = (there[run_id], runs) if run_id in there else (runs[0], runs[1:])
            different = [sentence for other in others if (sentence := compared(first, other))]
            done.different += different
            if run_id in there:
                done.equal += not different
            else:
                _copy(first, to / part, done)
    return done


def _found(folder: Path, left_out: list[str]) -> Iterator[RunInFile]:
    """Runs of a folder, and a sentence for each other file."""
    for path in run_files.find(folder):
        try:
            yield from (RunInFile(path, run) for run in run_files.checked(path).runs())
        except RunFileError as error:
            left_out.append(str(error))


def _copy(run: RunInFile, to: Path, done: Merged) -> None:
    """Write a run after its weights."""
    to.mkdir(parents=True, exist_ok=True)
    path = to / run.name
    if saved := run.saved:
        try:
            run_files.write_weights(
                saved.beside(path), run_files.read_weights(saved.beside(run.path.with_name(run.name)), saved)
            )
            done.weights += 1
        except RunFileError as error:
            done.left_out.append(f"{error}; the run is merged without them")
    if renamed := run_files.make_room(path, run.run.run_id):
        done.left_out.append(renamed)
    with created(path) as partial:
        partial.write_bytes(run.content())
    done.written += 1


def different(run_id: str, first: Path, second: Path) -> str | None:
    """A sentence on the first different number of a run in two files; None if all common numbers are equal in float32.

    The package of published runs has some numbers in float32.
    """
    place = _first_difference(_tables(first)[run_id], _tables(second)[run_id], _alike)
    return place and f"run {run_id} in {first} and {second}: {place}"


def compared(first: RunInFile, second: RunInFile) -> str | None:
    """A sentence on the first different number of two files of one run; None if all common numbers are equal.

    Metadata of two machines differ in seconds and versions, and one file may have more measurements.
    """
    place = _first_difference(first.rows(), second.rows(), lambda one, other: repr(one) == repr(other))  # all bits; NaN is NaN
    return place and f"{first.where} and {second.where}: {place}"


def _first_difference(first: pa.Table, second: pa.Table, equal: Callable[[Number, Number], bool]) -> str | None:
    one, other = numbers_in(first), numbers_in(second)
    differing = (place for place in one if place in other and not equal(one[place], other[place]))
    return next((f"{place} is {one[place]} and {other[place]}" for place in differing), None)


def _alike(one: Number, other: Number) -> bool:
    """Whether two numbers are equal in float32."""
    if one.value is None or other.value is None or one.n != other.n:
        return one == other
    return repr(one) == repr(other) or math.isclose(one.value, other.value, rel_tol=2**-23, abs_tol=1e-37)
