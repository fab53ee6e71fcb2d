"""Claims: a population that one process alone trains, and the record of it in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from lgbench.atomic_files import replaced
from lgbench.execution.lease import Lease, LeaseLost
from lgbench.execution.markers import Markers
from lgbench.experiment.experiment import Experiment
from lgbench.results import run_files

RECORD = "population.json"
CHECKPOINT = "checkpoint.safetensors"

MadeBy = Callable[[Sequence[Experiment]], Mapping[str, str]]
"""From the members of a population to the versions that take part in their training."""


class PopulationRecord(NamedTuple):
    """The record in a population's folder."""

    files: dict[str, str]
    """The names of the members' run files, by the ids of their runs: whoever reads them need not search the results folder."""
    models: int
    """The size of the stack that they are trained in."""
    made_by: dict[str, str]

    @classmethod
    def of(cls, experiments: Sequence[Experiment], models: int, made_by: MadeBy) -> PopulationRecord:
        files = {experiment.run_id: run_files.name_for(experiment.record) for experiment in experiments}
        return cls(files, models, dict(made_by(experiments)))

    @classmethod
    def read(cls, folder: Path) -> PopulationRecord | None:
        """None where there is no record of the form that :meth:`write` writes.

        Raises OSError where the disk does not answer, for that is no reason to remove what was trained.
        """
        try:
            about = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        if not isinstance(about, dict) or about.keys() != set(cls._fields):
            return None
        record = cls(**about)
        if not isinstance(record.models, int) or not all(isinstance(own, dict) for own in (record.files, record.made_by)):
            return None
        names = [*record.files, *record.files.values()]
        if record.models < len(record.files) or not all(isinstance(name, str) and "/" not in name for name in names):
            return None
        return record if all(isinstance(version, str) for version in record.made_by.values()) else None

    def write(self, folder: Path) -> None:
        with replaced(folder / RECORD) as partial:
            partial.write_text(json.dumps(self._asdict()), encoding="utf-8")

    def finished(self, results: Path) -> bool:
        """Whether all runs have files."""
        return all(run_files.is_run(results / name, run) for run, name in self.files.items())


@dataclass(frozen=True)
class Claim:
    """A population that this process alone trains. A context manager: its end gives the runs back.

    After an error the folder stays if it has a checkpoint, after an interrupt also if some of the runs are written. With it the
    same command ends with the same numbers, for it trains the same models together. Otherwise nothing stays.
    """

    experiments: list[Experiment]
    models: int
    """The size of the stack that they are trained in, which a compiled step is made for."""
    lease: Lease
    markers: Markers
    results: Path

    @property
    def folder(self) -> Path:
        return self.lease.folder

    @property
    def checkpoint(self) -> Path:
        return self.folder / CHECKPOINT

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind and issubclass(kind, LeaseLost):
            return  # all of it is another process's
        if kind is None or issubclass(kind, Exception):
            self.lease.require()  # a lost lease is why nothing could be written
        self.markers.give_back(self.lease, [experiment.run_id for experiment in self.experiments])
        if kind and self._worth_keeping(interrupted=not issubclass(kind, Exception)):
            self.lease.park()
        else:
            self.lease.remove()
        remove_empty(self.markers.folder)

    def _worth_keeping(self, *, interrupted: bool) -> bool:
        """Whether the folder helps whoever makes what is left of these runs."""
        written = [run_files.is_run(run_files.path_for(self.results, each.record), each.run_id) for each in self.experiments]
        return not all(written) and (self.checkpoint.exists() or (interrupted and any(written)))


def remove_empty(markers: Path) -> None:
    """Remove the folders of a work queue where nothing is in them."""
    for folder in (markers, markers.parent):
        with suppress(OSError):  # it is gone, or not empty
            folder.rmdir()
