"""The work queue of a results folder: each process takes runs that no other process has, or continues those of a killed one.

Under `.unfinished` a population in training is a folder with the ids of its runs and the latest checkpoint. Its process holds
it by a lease. A run is taken by making its marker, a link to the population's name, which the file system lets one process
do. Only the holder of a population removes its markers, so no process judges another one's.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from lgbench.atomic_files import replaced
from lgbench.errors import RunFailed
from lgbench.execution import lease
from lgbench.execution.lease import Lease, LeaseLost
from lgbench.experiment.experiment import Experiment
from lgbench.results import run_files

UNFINISHED = ".unfinished"
MARKERS = "taken"
"""The folder of the markers of runs."""
RECORD = "population.json"
CHECKPOINT = "checkpoint.safetensors"

MadeBy = Callable[[Sequence[Experiment]], Mapping[str, str]]
"""From the members of a population to the versions that take part in their training."""


class _Record(NamedTuple):
    """The record in a population's folder."""

    runs: list[str]
    models: int
    """The size of the stack that they are trained in."""
    made_by: dict[str, str]


class Markers:
    """Which population has taken which run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> dict[str, str]:
        """The names of populations by the runs that they have taken."""
        found = {}
        with suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                with suppress(OSError):  # given back in the meantime
                    found[path.name] = os.readlink(path)
        return found

    def take(self, runs: Sequence[str], population: Lease) -> list[str]:
        """Take runs for a population, up to the first that another one has; returns those that were taken."""
        return list(takewhile(lambda run: self._take(run, population), runs))

    def _take(self, run: str, population: Lease) -> bool:
        while True:
            try:
                os.symlink(lease.name_of(population.folder), self.folder / run)
            except FileExistsError:
                return False
            except FileNotFoundError:  # another process has just removed the folder, which was empty
                population.require()
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                reason = f"{error.strerror}: the file system must have symbolic links, by which commands share work"
                raise RunFailed(f"cannot make a link in {self.folder}: {reason}") from error
            else:
                return True

    def give_back(self, population: Lease) -> None:
        """Remove the markers of a population.

        Each is moved into the population's folder first, which fails if another process has taken the population.
        """
        name = lease.name_of(population.folder)
        for run in [run for run, taker in self.all().items() if taker == name]:
            gone = population.folder / f"{run}.given-back"
            with suppress(FileNotFoundError):
                (self.folder / run).rename(gone)
                gone.unlink()

    def give_back_orphans(self, populations: Collection[str], watch: lease.Watch) -> None:
        """Remove the markers of populations whose folder somebody has removed by hand, once that is certain."""
        for run, name in self.all().items():
            if name not in populations and watch.stands_still(f"{run} {name}", b""):
                (self.folder / run).unlink(missing_ok=True)


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
        written = [_has_file(self.results, experiment.run_id) for experiment in self.experiments]
        interrupted = kind is not None and not issubclass(kind, Exception)
        self.markers.give_back(self.lease)
        if kind and not all(written) and (self.checkpoint.exists() or (interrupted and any(written))):
            self.lease.park()
        else:
            self.lease.remove()
        _remove_empty(self.markers.folder)


class WorkQueue:
    """The unfinished runs of one command, and the claims of all processes on runs of its results folder."""

    def __init__(self, results: Path, paths: Mapping[Experiment, Path]) -> None:
        """`paths`: the path of each run's file."""
        self.results, self.folder = results, results / UNFINISHED
        self.paths = paths
        self._markers = Markers(self.folder / MARKERS)
        self._watch = lease.Watch()
        self._by_id = {experiment.run_id: experiment for experiment in paths}
        self._finished: set[Experiment] = set()

    def unfinished(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """The experiments that have no run file yet. An empty, truncated or foreign file under a run's name is none."""
        left = [experiment for experiment in experiments if experiment not in self._finished]
        self._finished |= {e for e in left if run_files.is_run(self.paths[e], e.run_id)}
        return [experiment for experiment in left if experiment not in self._finished]

    def begun(self) -> set[str]:
        """The runs of all populations in the folder. Only looks."""
        runs: set[str] = set()
        for folder in self._populations():
            with suppress(OSError):  # another process has just taken or ended it
                if record := _record(folder):
                    runs.update(record.runs)
        return runs

    def clear(self) -> None:
        """Remove the folders that killed processes left of finished populations."""
        for _ in self._parked():
            pass
        _remove_empty(self._markers.folder)

    def take(self, group: Sequence[Experiment], most: int, made_by: MadeBy, limit: float = math.inf) -> Claim | None:
        """A population of at most `most` runs of `group` that are neither finished nor another process's; None if none is left.

        It is trained in a stack of `most` models, or as it began.

        The population of a killed process comes first, with the same members, if this command asks for all of them, its stack
        is not larger than `limit`, and the versions that take part, which `made_by` gives, have not changed.
        """
        try:
            return self._taken(group, most, made_by, limit)
        except LeaseLost:  # this process was stopped while it took them
            return None

    def _taken(self, group: Sequence[Experiment], most: int, made_by: MadeBy, limit: float) -> Claim | None:
        wanted = {experiment.run_id for experiment in group}
        for folder, record in self._parked():
            members = [self._by_id[run] for run in record.runs if run in self._by_id]
            asked_for = len(members) == len(record.runs) and not wanted.isdisjoint(record.runs) and record.models <= limit
            if asked_for and record.made_by == made_by(members) and (claim := self._continued(folder, members, record)):
                return claim
        taken = self._markers.all()
        free = [experiment for experiment in self.unfinished(group) if experiment.run_id not in taken]
        return self._begun(free[:most], most, made_by) if free else None

    def _parked(self) -> Iterator[tuple[Path, _Record]]:
        """The populations that nobody trains, with their records.

        Those of killed processes become such. Those of which nothing is left to do, or whose record is unusable, are removed.
        """
        populations = self._populations()
        self._markers.give_back_orphans({lease.name_of(folder) for folder in populations}, self._watch)
        for folder in populations:
            if folder.name.endswith(lease.GONE):
                lease.remove_tree(folder)
                continue
            parked = lease.is_parked(folder)
            if not parked and not self._watch.is_dead(folder):
                continue
            if parked and (record := self._to_do(folder)):
                yield folder, record
            elif held := lease.take(folder):
                try:
                    self._markers.give_back(held)
                    record = self._to_do(held.folder)  # read again: before, another process may have had the folder
                    if record is None:
                        held.remove()
                finally:
                    held.park()  # which changes nothing where it was removed
                if record:
                    yield folder.with_name(lease.name_of(folder)), record

    def _to_do(self, folder: Path) -> _Record | None:
        """The record of a population; None if it is unusable, or if all its runs are finished."""
        record = _record(folder)
        return None if record is None or all(_has_file(self.results, run) for run in record.runs) else record

    def _populations(self) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.is_dir() and path.name != MARKERS)
        except FileNotFoundError:
            return []

    def _continued(self, folder: Path, members: list[Experiment], record: _Record) -> Claim | None:
        """A claim on a parked population; None where other processes have it, or one of its runs."""
        if not (held := lease.take(folder)):
            return None
        with ExitStack() as otherwise:
            otherwise.callback(held.park)
            otherwise.callback(self._markers.give_back, held)
            left = [experiment.run_id for experiment in self.unfinished(members)]
            if self._markers.take(left, held) == left:
                otherwise.pop_all()
                return Claim(members, record.models, held, self._markers, self.results)
        return None

    def _begun(self, experiments: list[Experiment], models: int, made_by: MadeBy) -> Claim | None:
        """A claim on a new population of these runs, up to the first that another process takes; None if that is the first."""
        held = lease.make(self.folder)
        with ExitStack() as otherwise:
            otherwise.callback(held.remove)
            otherwise.callback(self._markers.give_back, held)
            _write_record(held, experiments, models, made_by)
            runs = set(self._markers.take([experiment.run_id for experiment in experiments], held))
            mine = self.unfinished([experiment for experiment in experiments if experiment.run_id in runs])
            if mine:
                if len(mine) < len(experiments):
                    _write_record(held, mine, models, made_by)
                otherwise.pop_all()
                return Claim(mine, models, held, self._markers, self.results)
        return None


def _record(folder: Path) -> _Record | None:
    """None where there is no record of the form that :func:`_write_record` writes.

    Raises OSError where the disk does not answer, for that is no reason to remove what was trained.
    """
    try:
        about = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if not isinstance(about, dict) or about.keys() != set(_Record._fields):
        return None
    record = _Record(**about)
    if not isinstance(record.runs, list) or not isinstance(record.made_by, dict) or not isinstance(record.models, int):
        return None
    if record.models < len(record.runs):
        return None
    return record if all(isinstance(text, str) for text in (*record.runs, *record.made_by.values())) else None


def _write_record(population: Lease, experiments: Sequence[Experiment], models: int, made_by: MadeBy) -> None:
    record = _Record([experiment.run_id for experiment in experiments], models, dict(made_by(experiments)))
    with replaced(population.folder / RECORD) as partial:
        partial.write_text(json.dumps(record._asdict()), encoding="utf-8")


def _remove_empty(markers: Path) -> None:
    """Remove the folders of the queue where nothing is in them."""
    for folder in (markers, markers.parent):
        with suppress(OSError):  # it is gone, or not empty
            folder.rmdir()


def _has_file(results: Path, run_id: str) -> bool:
    """Whether the run has a file, of this command or of another one."""
    return any(run_files.is_run(path, run_id) for path in results.glob(f"*.{run_id}.parquet"))
