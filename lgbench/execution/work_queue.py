"""Work queue of a results folder: commands share runs by a lock on each population in training; and dispatch to processes.

Files under `.unfinished`, with ID a hash of the planned population and of all versions that take part:

    ID.lock                       process that trains the population
    ID/population.json            planned population
    ID/checkpoint.safetensors     latest state of the training

Commands with the same plan try for the same locks. Commands with partly overlapping populations may train a run twice, which
is harmless: run files are made once and never replaced.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from types import TracebackType

import msgspec
import torch

from lgbench.atomic_files import replaced
from lgbench.checkout import VERSION
from lgbench.errors import UsageError, first_line
from lgbench.experiment.experiment import Experiment, plugins_of
from lgbench.experiment.record import ExperimentRecord
from lgbench.lock import STALE, Lock, is_locked
from lgbench.results import run_files
from lgbench.terminal import counted


@dataclass(frozen=True)
class PlannedPopulation:
    """Planned population: runs that train together, as names and numbers. Pickles, and converts to text by :meth:`to_json`."""

    runs: tuple[ExperimentRecord, ...]
    """Record of each run: names of task and entry, settings, seed. All numbers follow from the record."""
    models: int
    """Stack size, at least the number of runs. A compiled step takes a fixed stack size."""
    compile: bool
    """Whether the training step is compiled."""
    plugins: tuple[str, ...]
    """Names of the distributions and plugin files that take part. The training process loads no other plugins."""
    measurements: tuple[str, ...]
    """Names of the measurements and probes of the runs. Without effect on other numbers."""
    tuning: bool = False
    """Whether the runs are tuning runs, for the choice of learning rates, with files in the folder `.tuning` of the results."""

    @classmethod
    def of(cls, experiments: Sequence[Experiment], models: int, compile: bool, tuning: bool = False) -> PlannedPopulation:
        """Population of experiments with equal `population_key`."""
        records = tuple(experiment.record for experiment in experiments)
        measurements = dict.fromkeys(each.name for experiment in experiments for each in experiment.measurements)
        return cls(records, models, compile, tuple(sorted(plugins_of(experiments))), tuple(measurements), tuning)

    @property
    def title(self) -> str:
        """For messages."""
        return title_of(self.runs)

    def to_json(self) -> str:
        """Population as one line of JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> PlannedPopulation:
        """Population from the text of :meth:`to_json`. Raises UsageError for any other text."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"this is no population as to_json writes it: {first_line(error)}") from error


def named(runs: Sequence[ExperimentRecord]) -> str:
    """Tasks and entry of runs with equal `population_key`, for messages."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    return f"{tasks[0] if len(tasks) == 1 else f'{tasks[0]} .. {tasks[-1]}'} {runs[0].entry}"


def title_of(runs: Sequence[ExperimentRecord]) -> str:
    """Tasks, entry and number of models, for messages."""
    return f"{named(runs)} ({counted(len(runs), 'model')})"


UNFINISHED = ".unfinished"
RECORD = "population.json"
CHECKPOINT = "checkpoint.safetensors"
LOCK = ".lock"


@dataclass(frozen=True)
class LockedPopulation:
    """Population with the lock of this command. A context manager: the exit removes the folder and releases the lock.

    A folder with a checkpoint stays after an error. After an interrupt the folder also stays if some of the runs are written.
    The same command then trains the same models together, with the same numbers.
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
        self.release(error)

    def release(self, error: BaseException | None = None) -> None:
        """Release the lock, after the end of the training or its error."""
        _end(self.lock, keep=error is not None and self._worth_keeping(interrupted=not isinstance(error, Exception)))

    def _worth_keeping(self, *, interrupted: bool) -> bool:
        written = [_has_file(record, self.results) for record in self.planned.runs]
        return not all(written) and ((self.folder / CHECKPOINT).exists() or (interrupted and any(written)))


class WorkQueue:
    """Queue of the runs of a command, taken one population at a time."""

    def __init__(self, results: Path, experiments: Iterable[Experiment], device: torch.device) -> None:
        self.results, self.folder, self.device = results, results / UNFINISHED, device
        self._by_id = {experiment.run_id: experiment for experiment in experiments}

    def begun(self) -> set[str]:
        """Run ids of all populations in training, or left by killed processes."""
        found = [planned for folder in self._populations() if (planned := _planned(folder))]
        return {record.run_id for planned in found for record in planned.runs}

    def clear(self) -> None:
        """Remove the remains of finished populations left by killed processes."""
        for folder in self._populations():
            if not self._unfinished(folder) and (lock := Lock.take(_lock_path(folder))):
                _end(lock, keep=self._unfinished(folder) is not None)  # another process may have begun it since
        for path in self.folder.glob(f"*{STALE}"):
            path.unlink(missing_ok=True)
        _remove_empty(self.folder)

    def take(
        self, left: dict[str, Experiment], models: int, compile: bool = False, limit: float = math.inf
    ) -> LockedPopulation | None:
        """Population of at most `models` of the experiments in `left`, by run id; None if other processes have all of them.

        A population left by a killed process comes first, under three conditions: this command needs all members, the same
        versions take part, and the stack has at most `limit` models. Experiments with a run file are removed from `left`.
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
        """Population with its lock; None if another process has the lock or has just finished the runs."""
        folder = self.folder / self._id(planned)
        if not (lock := Lock.take(_lock_path(folder))):
            return None
        population = LockedPopulation(planned, [self._by_id[record.run_id] for record in planned.runs], lock, self.results)
        with ExitStack() as otherwise:
            otherwise.callback(population.release)
            if not _planned(folder):
                folder.mkdir(exist_ok=True)
                with replaced(folder / RECORD) as partial:
                    partial.write_text(planned.to_json(), encoding="utf-8")
            if not all(_has_file(record, self.results) for record in planned.runs):
                otherwise.pop_all()
                return population
        return None

    def _is_same(self, folder: Path, planned: PlannedPopulation, left: Collection[str]) -> bool:
        """Whether this command would plan the same population as in `folder`, with runs still untried."""
        runs = [record.run_id for record in planned.runs]
        members = [self._by_id[run_id] for run_id in runs if run_id in self._by_id]
        if len(members) < len(runs) or not any(run_id in left for run_id in runs):
            return False
        return folder.name == self._id(PlannedPopulation.of(members, planned.models, planned.compile))

    def _id(self, planned: PlannedPopulation) -> str:
        members = [self._by_id[record.run_id] for record in planned.runs]
        versions = json.dumps(made_by(members, self.device), sort_keys=True)
        return hashlib.blake2b(f"{planned.to_json()}\n{versions}".encode(), digest_size=8).hexdigest()

    def _unfinished(self, folder: Path) -> PlannedPopulation | None:
        """Planned population of a folder; None if its record is unusable or all its runs have files."""
        planned = _planned(folder)
        return planned if planned and not all(_has_file(record, self.results) for record in planned.runs) else None

    def _populations(self) -> list[Path]:
        """Folders of all unfinished populations, also before the folder is made, when only the lock exists."""
        try:
            names = {name.removesuffix(LOCK) for name in os.listdir(self.folder) if not name.endswith(STALE)}
        except FileNotFoundError:
            return []
        return [self.folder / name for name in sorted(names)]


def unfinished(experiments: Iterable[Experiment], results: Path) -> list[Experiment]:
    """Experiments without a run file. An empty, truncated or foreign file under a run's name does not count."""
    return [experiment for experiment in experiments if not _has_file(experiment.record, results)]


def path_of(experiment: Experiment, folder: Path) -> Path:
    """Path of an experiment's run file."""
    return run_files.path_for(folder, experiment.record)


def _has_file(record: ExperimentRecord, results: Path) -> bool:
    return run_files.is_run(run_files.path_for(results, record), record.run_id)


def _planned(folder: Path) -> PlannedPopulation | None:
    """Planned population of a folder; None without a usable record.

    Raises OSError if the disk does not answer: an unreadable record is no reason to remove a checkpoint.
    """
    try:
        return PlannedPopulation.from_json((folder / RECORD).read_bytes())
    except (FileNotFoundError, UsageError):
        return None


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{LOCK}")


def _end(lock: Lock, keep: bool) -> None:
    """Release a lock. Before, remove the population's folder, unless `keep` or if another process has taken over."""
    if lock.is_held and not keep:
        rmtree(lock.path.with_suffix(""), ignore_errors=True)
    lock.release()
    _remove_empty(lock.path.parent)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # the folder is gone, or not empty
        folder.rmdir()


def made_by(population: Sequence[Experiment], device: torch.device) -> dict[str, str]:
    """Versions of lgbench, torch, plugins and the plugins' libraries, and the device type.

    A process continues a training only with equal versions.
    """
    versions = {"lgbench": VERSION, "torch": torch.__version__, "device": device.type}
    for experiment in population:  # one population may have tasks of several plugins
        versions |= {**experiment.plugins, **experiment.libraries}
    return versions


WAIT_SECONDS = 1.0
"""Time between two checks of the locks of other commands while no population is free."""


@dataclass(frozen=True)
class Done:
    """Ended population."""

    population: LockedPopulation
    written: list[Path]
    """Run files written by this command, possibly before a failure."""
    error: Exception | None = None
    """Exception of a failed population."""


class Dispatcher(ABC):
    """Dispatch of populations to processes. Each process trains one population at a time, since initial weights come from
    torch's global generator."""

    most: int
    """Largest number of populations in training at the same time."""

    @property
    @abstractmethod
    def busy(self) -> int:
        """Number of populations in training."""

    @abstractmethod
    def begin(self, locked: LockedPopulation) -> None:
        """Start the training of a population."""

    @abstractmethod
    def ended(self, seconds: float | None) -> Iterator[Done]:
        """Released populations, after a wait for the next end of at most `seconds`; None for no limit."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all trainings, and release their populations as after an interrupt."""

    def run(self, left: Iterable[LockedPopulation | None]) -> Iterator[Done]:
        """Run every population of `left`.

        `left` is lazy and locks each population when taken. None means that other commands train all remaining runs, some of
        which may become free: the next element is taken after WAIT_SECONDS.
        """
        source: Iterator[LockedPopulation | None] | None = iter(left)
        look_again = 0.0
        try:
            while True:
                while source and self.busy < self.most and time.monotonic() >= look_again:
                    match next(source, _END):
                        case LockedPopulation() as locked:
                            self.begin(locked)
                        case None:
                            look_again = time.monotonic() + WAIT_SECONDS
                        case _:
                            source = None
                if not source and not self.busy:
                    return
                for done in self.ended(WAIT_SECONDS if source else None):
                    yield done
                    source = source or iter(left)  # the scheduler may try its runs again
        finally:
            self.stop()


_END = object()


def released(locked: LockedPopulation, written: list[Path], error: Exception | None = None) -> Done:
    """Ended population, after its release."""
    with suppress(OSError):  # the disk may be gone, and the run files are written
        locked.release(error)
    return Done(locked, written, error)
