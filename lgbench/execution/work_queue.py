"""Work queue of a results folder: commands share runs by a lock on each population in training.

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
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import msgspec
import torch

from lgbench.atomic_files import created, replaced
from lgbench.checkout import VERSION
from lgbench.errors import RunFailed
from lgbench.experiment.experiment import Experiment, plugins_of
from lgbench.experiment.record import ExperimentRecord
from lgbench.lock import STALE, Lock, is_locked
from lgbench.results import run_files
from lgbench.results.run_files import SavedWeights, saved_by


@dataclass(frozen=True)
class PlannedPopulation:
    """Planned population: runs that train together, as names and numbers. Can be pickled, and converted to JSON."""

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

    @classmethod
    def of(cls, experiments: Sequence[Experiment], models: int, compile: bool) -> PlannedPopulation:
        """Population of experiments with equal `population_key`."""
        records = tuple(experiment.record for experiment in experiments)
        measurements = dict.fromkeys(each.name for experiment in experiments for each in experiment.measurements)
        return cls(records, models, compile, tuple(sorted(plugins_of(experiments))), tuple(measurements))

    @property
    def title(self) -> str:
        """For messages."""
        return title_of(self.runs)


def named(runs: Sequence[ExperimentRecord]) -> str:
    """Tasks and entry of runs with equal `population_key`, for messages."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    return f"{tasks[0] if len(tasks) == 1 else f'{tasks[0]} .. {tasks[-1]}'} {runs[0].entry}"


def title_of(runs: Sequence[ExperimentRecord]) -> str:
    """Tasks, entry and seed, or number of models, for messages."""
    return f"{named(runs)} seed {runs[0].seed}" if len(runs) == 1 else f"{named(runs)} ({len(runs)} models)"


UNFINISHED = ".unfinished"
RECORD = "population.json"
CHECKPOINT = "checkpoint.safetensors"
LOCK = ".lock"
_ID = re.compile("[0-9a-f]{16}")
"""Form of a population's name."""


@dataclass(frozen=True)
class LockedPopulation:
    """Population with the lock of this command."""

    planned: PlannedPopulation
    experiments: list[Experiment]
    lock: Lock
    results: Path

    @property
    def folder(self) -> Path:
        """Folder of the checkpoint and of run files in the making."""
        return self.lock.path.with_suffix("")

    def release(self, error: BaseException | None = None) -> None:
        """Remove the folder and release the lock, after the end of the training or its error.

        A folder with a checkpoint stays after an error. After an interrupt the folder also stays if some of the runs are
        written. The same command then trains the same models together, with the same numbers.
        """
        left = len(unfinished(self.experiments, self.results)) if error else 0
        begun = left < len(self.experiments) and not isinstance(error, Exception)
        _end(self.lock, keep=left > 0 and (begun or (self.folder / CHECKPOINT).exists()))

    def filed(self, files: Mapping[str, bytes], say: Callable[[str], None]) -> list[Path]:
        """Write run files from another machine, each once and whole, with the saved weights. Returns the paths of new files.

        Raises RunFailed for a damaged file.
        """
        written = []
        for experiment in self.experiments:
            path = path_of(experiment, self.results)
            if path.name not in files or run_files.is_run(path, experiment.run_id):
                continue
            if said := run_files.make_room(path, experiment.run_id):
                say(said)
            self.folder.mkdir(parents=True, exist_ok=True)  # removed if another process took over and has ended
            with created(path, self.folder) as partial:
                partial.write_bytes(files[path.name])
                if not run_files.is_run(partial, experiment.run_id):
                    raise RunFailed(f"{path.name} came back damaged")
                if own := saved_by(run_files.metadata(partial)):  # first, because the run file names the weights
                    beside = own.beside(path)
                    if SavedWeights.of(files.get(beside.name, b"")) != own:
                        raise RunFailed(f"{beside.name} came back damaged")
                    run_files.write_weights(beside, files[beside.name], self.folder)
            written.append(path)
        return written


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
            if self._is_over(folder) and (lock := Lock.take(_lock_path(folder))):
                _end(lock, keep=not self._is_over(folder))  # another process may have begun it since
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
            if not (planned := _planned(folder)):
                continue
            if is_locked(_lock_path(folder)):
                elsewhere |= {record.run_id for record in planned.runs}
            elif planned.models <= limit and self._is_same(folder, planned, left) and (found := self._locked(planned)):
                return found
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
        begun = False
        try:
            if not (begun := _planned(folder) is not None):
                folder.mkdir(exist_ok=True)
                with replaced(folder / RECORD) as partial:
                    partial.write_bytes(msgspec.json.encode(planned))
            if unfinished(population.experiments, self.results):
                return population
        except BaseException:  # a full disk, or an interrupt
            _end(lock, keep=begun)
            raise
        population.release()
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
        return hashlib.blake2b(msgspec.json.encode(planned) + b"\n" + versions.encode(), digest_size=8).hexdigest()

    def _is_over(self, folder: Path) -> bool:
        """Whether all runs of a population have files, or its record is unusable."""
        planned = _planned(folder)
        return planned is None or all(_has_file(record, self.results) for record in planned.runs)

    def _populations(self) -> list[Path]:
        """Folders of all unfinished populations, also before the folder is made, when only the lock exists."""
        try:
            names = {name.removesuffix(LOCK) for name in os.listdir(self.folder)}
        except FileNotFoundError:
            return []
        # Other names are of stale locks, of a network folder's removed files, or of a desktop.
        return [self.folder / name for name in sorted(names) if _ID.fullmatch(name)]


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
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=PlannedPopulation)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):  # the last two for a damaged file
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
