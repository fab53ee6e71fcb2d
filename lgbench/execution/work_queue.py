"""Work queue of a results folder: commands share runs by a lock on each population in training.

Files under `.unfinished`, where ID is a hash of the planned population and of the versions that take part:

    ID.lock                       process that trains the population
    ID/population.json            planned population
    ID/checkpoint.safetensors     latest state of the training

Commands with the same plan try for the same locks. Commands whose populations overlap in part may train a run twice, which is
harmless: run files are made once and never replaced.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from types import TracebackType

import torch

from lgbench.atomic_files import replaced
from lgbench.errors import UsageError
from lgbench.execution import provenance
from lgbench.execution.populations import PlannedPopulation
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord
from lgbench.lock import STALE, Lock, is_locked
from lgbench.results import run_files

UNFINISHED = ".unfinished"
RECORD = "population.json"
CHECKPOINT = "checkpoint.safetensors"
LOCK = ".lock"


@dataclass(frozen=True)
class LockedPopulation:
    """Population that this command trains. A context manager: its end removes the folder and releases the lock.

    The folder stays after an error if it has a checkpoint, and after an interrupt also if some of the runs are written. The
    same command then trains the same models together and ends with the same numbers.
    """

    planned: PlannedPopulation
    experiments: list[Experiment]
    lock: Lock
    results: Path

    @property
    def folder(self) -> Path:
        """Folder of the checkpoint and of run files in the making."""
        return self.lock.path.with_suffix("")

    def __enter__(self) -> LockedPopulation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _end(self.lock, keep=kind is not None and self._worth_keeping(interrupted=not issubclass(kind, Exception)))

    def _worth_keeping(self, *, interrupted: bool) -> bool:
        written = [_has_file(record, self.results) for record in self.planned.runs]
        return not all(written) and ((self.folder / CHECKPOINT).exists() or (interrupted and any(written)))


class WorkQueue:
    """Runs of one command, to be taken one population at a time."""

    def __init__(self, results: Path, experiments: Iterable[Experiment], device: torch.device) -> None:
        self.results, self.folder, self.device = results, results / UNFINISHED, device
        self._by_id = {experiment.run_id: experiment for experiment in experiments}

    def begun(self) -> set[str]:
        """Ids of the runs of all populations that are trained now or were left by killed processes."""
        found = [planned for folder in self._populations() if (planned := _planned(folder))]
        return {record.run_id for planned in found for record in planned.runs}

    def clear(self) -> None:
        """Remove what killed processes left of finished populations."""
        for folder in self._populations():
            if not self._unfinished(folder) and (lock := Lock.take(_lock_path(folder))):
                _end(lock, keep=self._unfinished(folder) is not None)  # another process may have begun it before
        for path in self.folder.glob(f"*{STALE}"):
            path.unlink(missing_ok=True)
        _remove_empty(self.folder)

    def take(
        self, left: dict[str, Experiment], models: int, compile: bool = False, limit: float = math.inf
    ) -> LockedPopulation | None:
        """Population of at most `models` of the experiments in `left`, by run id; None if other processes have all of them.

        A population that a killed process left comes first, if this command would make the same one: it asks for all members,
        the same versions take part, and the stack has at most `limit` models. Experiments that turn out to have a file are
        removed from `left`.
        """
        elsewhere: set[str] = set()
        for folder in self._populations():
            if is_locked(_lock_path(folder)):
                planned = _planned(folder)
                elsewhere |= {record.run_id for record in planned.runs} if planned else set()
            elif planned := self._unfinished(folder):
                same = planned.models <= limit and self._is_same(folder, planned, left)
                if same and (population := self._locked(planned)):
                    return population
        while free := self._free(left, models, elsewhere):
            if population := self._locked(PlannedPopulation.of(free, models, compile)):
                return population
            elsewhere |= {experiment.run_id for experiment in free}  # another process was faster
        return None

    def _free(self, left: dict[str, Experiment], models: int, elsewhere: set[str]) -> list[Experiment]:
        free: list[Experiment] = []
        for run_id, experiment in list(left.items()):
            if len(free) == models:
                break
            if _has_file(experiment.record, self.results):
                del left[run_id]
            elif run_id not in elsewhere:
                free.append(experiment)
        return free

    def _locked(self, planned: PlannedPopulation) -> LockedPopulation | None:
        """Population with its lock; None if another process has the lock, or has just finished the runs."""
        folder = self.folder / self._id(planned)
        if not (lock := Lock.take(_lock_path(folder))):
            return None
        population = LockedPopulation(planned, [self._by_id[record.run_id] for record in planned.runs], lock, self.results)
        with ExitStack() as otherwise:
            otherwise.push(population)
            if not _planned(folder):
                folder.mkdir(exist_ok=True)
                with replaced(folder / RECORD) as partial:
                    partial.write_text(planned.to_json(), encoding="utf-8")
            if not all(_has_file(record, self.results) for record in planned.runs):
                otherwise.pop_all()
                return population
        return None

    def _is_same(self, folder: Path, planned: PlannedPopulation, left: Collection[str]) -> bool:
        """Whether this command would make the population in a folder, and has tried not all of its runs yet."""
        runs = [record.run_id for record in planned.runs]
        members = [self._by_id[run_id] for run_id in runs if run_id in self._by_id]
        if len(members) < len(runs) or not any(run_id in left for run_id in runs):
            return False
        return folder.name == self._id(PlannedPopulation.of(members, planned.models, planned.compile))

    def _id(self, planned: PlannedPopulation) -> str:
        members = [self._by_id[record.run_id] for record in planned.runs]
        versions = json.dumps(provenance.made_by(members, self.device), sort_keys=True)
        return hashlib.blake2b(f"{planned.to_json()}\n{versions}".encode(), digest_size=8).hexdigest()

    def _unfinished(self, folder: Path) -> PlannedPopulation | None:
        """Planned population of a folder; None if its record is unusable or all its runs have files."""
        planned = _planned(folder)
        return planned if planned and not all(_has_file(record, self.results) for record in planned.runs) else None

    def _populations(self) -> list[Path]:
        """Folders of the populations in training, with those that have only a lock yet."""
        try:
            names = {name.removesuffix(LOCK) for name in os.listdir(self.folder) if not name.endswith(STALE)}
        except FileNotFoundError:
            return []
        return [self.folder / name for name in sorted(names)]


def unfinished(experiments: Iterable[Experiment], results: Path) -> list[Experiment]:
    """Experiments without a run file. An empty, truncated or foreign file under a run's name does not count."""
    return [experiment for experiment in experiments if not _has_file(experiment.record, results)]


def _has_file(record: ExperimentRecord, results: Path) -> bool:
    return run_files.is_run(run_files.path_for(results, record), record.run_id)


def _planned(folder: Path) -> PlannedPopulation | None:
    """Planned population of a folder; None without a usable record.

    Raises OSError where the disk does not answer, since this is no reason to remove a checkpoint.
    """
    try:
        return PlannedPopulation.from_json((folder / RECORD).read_bytes())
    except (FileNotFoundError, UsageError):
        return None


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{LOCK}")


def _end(lock: Lock, keep: bool) -> None:
    """Release a lock, and remove the population's folder before unless it is to be kept, or another process has taken over."""
    if lock.is_held and not keep:
        rmtree(lock.path.with_suffix(""), ignore_errors=True)
    lock.release()
    _remove_empty(lock.path.parent)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is gone, or not empty
        folder.rmdir()
