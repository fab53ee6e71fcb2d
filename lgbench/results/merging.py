"""Merging folders of runs: copies of the run files that a folder lacks. A run in both places is compared and stays as it is.

Every file is written whole, weights before their run: after an interruption the same command completes the merge.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lgbench.atomic_files import created
from lgbench.errors import RunFileError, UsageError
from lgbench.results import run_files, weights_files
from lgbench.results.weights_files import KeptWeights, kept_by

PARTS = ("", run_files.TUNING)
"""Folders with runs in a results folder."""

_KEY = ("weights", "metric", "metric_version", "step", "length", "layer", "head")
"""Identifying columns of a number of a run."""


@dataclass(frozen=True)
class RunInFile:
    """A run in a run file or a submission file."""

    path: Path
    run_id: str
    metadata: dict[str, Any] = field(repr=False)
    numbers: int
    """Number of rows."""
    packed: bool
    """Whether the file is a submission file, with other runs."""

    @property
    def where(self) -> str:
        """File and run, for messages."""
        return f"{self.path}, run {self.run_id}" if self.packed else str(self.path)

    @property
    def name(self) -> str:
        """Name of the run file."""
        about = self.metadata["experiment"]
        # The last part alone: nothing is written outside the folder, whatever the metadata say.
        return Path(f"{about['task']}.{about['entry']}.seed-{about['seed']}.{self.run_id}.parquet").name

    @property
    def kept(self) -> KeptWeights | None:
        """Kept weights, by the metadata."""
        return kept_by(self.metadata)

    def rows(self) -> pa.Table:
        """Rows, read from the file each time: all runs of a merge may exceed the memory."""
        rows = _rows(self.path)
        return rows.filter(pc.equal(rows["run_id"], self.run_id)) if self.packed else rows

    def content(self) -> bytes:
        """Bytes of the run file."""
        return run_files.serialized(self.rows(), self.metadata) if self.packed else self.path.read_bytes()


@lru_cache(maxsize=2)  # the runs of a submission file ask for the same rows, one after the other
def _rows(path: Path) -> pa.Table:
    return run_files.read(path)


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
    """Copy missing runs from folders to another folder. Raises UsageError for a folder without runs."""
    done = Merged()
    sources = [each for each in dict.fromkeys(folder.resolve() for folder in folders) if each != to.resolve()]
    found = {folder: {part: list(_found(folder / part, done.left_out)) for part in PARTS} for folder in sources}
    for folder, parts in found.items():
        if not any(parts.values()):
            raise UsageError(f"no run is in {folder}; name a folder in which `lgbench run` wrote results")
    for part in PARTS:
        there = {run.run_id: run for run in _found(to / part, done.left_out)}
        by_id: dict[str, list[RunInFile]] = defaultdict(list)
        for parts in found.values():
            for run in parts[part]:
                by_id[run.run_id].append(run)
        for run_id, runs in by_id.items():
            runs.sort(key=lambda run: (run.kept is None, -run.numbers))  # a file with weights first, or with most numbers
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
            file = run_files.checked(path)
            if file.is_submission:
                yield from (RunInFile(path, run.run_id, run.footer, run.rows, True) for run in file.packed())
            else:
                yield from (
                    RunInFile(path, run_id, about, file.parquet.num_rows, False) for run_id, about in file.runs().items()
                )
        except RunFileError as error:
            left_out.append(str(error))


def _copy(run: RunInFile, to: Path, done: Merged) -> None:
    """Write a run after its weights."""
    to.mkdir(parents=True, exist_ok=True)
    if run.kept:
        name = weights_files.name_of(run.name, run.kept)
        try:
            weights_files.write(to / name, weights_files.read(run.path.with_name(name), run.kept))
            done.weights += 1
        except RunFileError as error:
            done.left_out.append(f"{error}; the run is merged without them")
    path = to / run.name
    if renamed := run_files.make_room(path, run.run_id):
        done.left_out.append(renamed)
    with created(path) as partial:
        partial.write_bytes(run.content())
    done.written += 1


def compared(first: RunInFile, second: RunInFile) -> str | None:
    """A sentence on the first different number of two files of one run; None if all common numbers are equal.

    Metadata of two machines differ in seconds and versions, and one file may have more measurements.
    """
    one, other = _numbers(first.rows()), _numbers(second.rows())
    for key, number in one.items():
        if key in other and _bits(number) != _bits(other[key]):
            return f"{first.where} and {second.where}: {_named(key)} is {_shown(number)} and {_shown(other[key])}"
    return None


_Number = tuple[float | None, int | None, int | None]


def _numbers(rows: pa.Table) -> dict[tuple[Any, ...], _Number]:
    """Value, count and step of divergence of each row."""
    keys = zip(*(rows.column(name).to_pylist() for name in _KEY), strict=True)
    values = zip(*(rows.column(name).to_pylist() for name in ("value", "n", "diverged_step")), strict=True)
    return dict(zip(keys, values, strict=True))


def _bits(number: _Number) -> tuple[bytes | None, int | None, int | None]:
    """The number with the bits of its value: NaN equals NaN."""
    value, *others = number
    return None if value is None else struct.pack("<d", value), others[0], others[1]


def _named(key: tuple[Any, ...]) -> str:
    weights, metric, _, step, length, layer, head = key
    at = [f"{name} {value}" for name, value in (("length", length), ("layer", layer), ("head", head)) if value is not None]
    return f"{metric} ({weights}) {' '.join([f'after step {step}', *(f'at {each}' for each in at)])}"


def _shown(number: _Number) -> str:
    value, n, diverged = number
    return f"{value!r} (n {n}{'' if diverged is None else f', diverged at step {diverged}'})"
