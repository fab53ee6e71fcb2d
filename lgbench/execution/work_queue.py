"""The work queue of a results folder: each process takes runs that no other process has, or continues those of a killed one.

Under `.unfinished` a population in training is a folder with the names of its run files and the latest checkpoint. Its process
holds it by a lease, and has taken its runs by :mod:`lgbench.execution.markers`. What a process does to take a population
depends on how many populations are in training, and not on how many runs there are.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from lgbench.execution import lease
from lgbench.execution.claim import Claim, MadeBy, PopulationRecord, remove_empty
from lgbench.execution.lease import Lease, LeaseLost
from lgbench.execution.markers import MARKERS, Markers
from lgbench.experiment.experiment import Experiment
from lgbench.results import run_files

UNFINISHED = ".unfinished"

Left = OrderedDict[str, Experiment]
"""Experiments that may have no run file yet, by their ids, in the order in which they are taken. Taking the first one from an
ordinary dict would pass all places that are empty by now."""

FEW = 100
"""So many files are looked for one by one. For more, reading the names in the folder takes less."""


class WorkQueue:
    """The unfinished runs of one command, and the claims of all processes on runs of its results folder."""

    def __init__(self, results: Path, experiments: Iterable[Experiment]) -> None:
        self.results, self.folder = results, results / UNFINISHED
        self._markers = Markers(self.folder / MARKERS)
        self._watch = lease.Watch()
        self._by_id = {experiment.run_id: experiment for experiment in experiments}

    def begun(self) -> set[str]:
        """The runs of all populations in the folder. Only looks."""
        runs: set[str] = set()
        for folder in self._populations():
            with suppress(OSError):  # another process has just taken or ended it
                if record := PopulationRecord.read(folder):
                    runs.update(record.files)
        return runs

    def clear(self) -> None:
        """Remove the folders that killed processes left of finished populations."""
        for _ in self._parked():
            pass
        self._give_back_orphans()
        remove_empty(self._markers.folder)

    def take(self, left: Left, most: int, made_by: MadeBy, limit: float = math.inf) -> Claim | None:
        """A population of at most `most` runs of `left` that are neither finished nor another process's; None if there is none.

        It is trained in a stack of `most` models, or as it began. Runs that turn out to have a file are removed from `left`.

        The population of a killed process comes first, with the same members, if this command asks for all of them, its stack
        is not larger than `limit`, and the versions that take part, which `made_by` gives, have not changed.
        """
        try:
            return self._taken(left, most, made_by, limit)
        except LeaseLost:  # this process was stopped while it took them
            return None

    def _taken(self, left: Left, most: int, made_by: MadeBy, limit: float) -> Claim | None:
        for folder, record in self._parked():
            members = [self._by_id[run] for run in record.files if run in self._by_id]
            asked_for = (
                len(members) == len(record.files) and any(run in left for run in record.files) and record.models <= limit
            )
            if asked_for and record.made_by == made_by(members) and (claim := self._continued(folder, members, record)):
                return claim
        while free := self._free(left, most):
            if claim := self._begun(free, most, made_by):
                return claim
            if unfinished(free[:1], self.results):  # another process was faster
                return None
        self._give_back_orphans()
        return None

    def _free(self, left: Left, most: int) -> list[Experiment]:
        """The first runs of `left` that no population has. Those before them that have a file are removed from it."""
        taken = self._markers.taken()
        free: list[Experiment] = []
        finished: list[Experiment] = []
        for run, experiment in left.items():
            if len(free) == most:
                break
            if run not in taken:
                (free if unfinished([experiment], self.results) else finished).append(experiment)
        for experiment in finished:
            del left[experiment.run_id]
        return free

    def _parked(self) -> Iterator[tuple[Path, PopulationRecord]]:
        """The populations that nobody trains, with their records.

        Those of killed processes become such. Those of which nothing is left to do, or whose record is unusable, are removed.
        """
        for folder in self._populations():
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
                    self._give_back(held)
                    record = self._to_do(held.folder)  # read again: before, another process may have had the folder
                    if record is None:
                        held.remove()
                finally:
                    held.park()  # which changes nothing where it was removed
                if record:
                    yield folder.with_name(lease.name_of(folder)), record

    def _give_back(self, population: Lease) -> None:
        """Give back the runs that a killed process has taken for a population."""
        record = None
        with suppress(OSError):
            record = PopulationRecord.read(population.folder)
        self._markers.give_back(population, record.files if record else None)

    def _to_do(self, folder: Path) -> PopulationRecord | None:
        """The record of a population; None if it is unusable, or if all its runs are finished."""
        record = PopulationRecord.read(folder)
        return None if record is None or record.finished(self.results) else record

    def _populations(self) -> list[Path]:
        try:
            with os.scandir(self.folder) as found:
                return sorted(Path(entry) for entry in found if entry.is_dir() and entry.name != MARKERS)
        except FileNotFoundError:
            return []

    def _give_back_orphans(self) -> None:
        self._markers.give_back_orphans({lease.name_of(folder) for folder in self._populations()}, self._watch)

    def _continued(self, folder: Path, members: list[Experiment], record: PopulationRecord) -> Claim | None:
        """A claim on a parked population; None where other processes have it, or one of its runs."""
        if not (held := lease.take(folder)):
            return None
        with ExitStack() as otherwise:
            otherwise.callback(held.park)
            otherwise.callback(self._markers.give_back, held, record.files)
            left = [experiment.run_id for experiment in unfinished(members, self.results)]
            if self._markers.take(left, held) == left and unfinished(members, self.results):
                otherwise.pop_all()
                return Claim(members, record.models, held, self._markers, self.results)
        return None

    def _begun(self, experiments: list[Experiment], models: int, made_by: MadeBy) -> Claim | None:
        """A claim on a new population of these runs, up to the first that another process takes; None if that is the first."""
        held = lease.make(self.folder)
        with ExitStack() as otherwise:
            otherwise.callback(held.remove)
            runs = [experiment.run_id for experiment in experiments]
            otherwise.callback(self._markers.give_back, held, runs)
            PopulationRecord.of(experiments, models, made_by).write(held.folder)
            taken = set(self._markers.take(runs, held))
            mine = unfinished([experiment for experiment in experiments if experiment.run_id in taken], self.results)
            if mine:
                if len(mine) < len(experiments):
                    self._markers.give_back(held, taken - {experiment.run_id for experiment in mine})
                    PopulationRecord.of(mine, models, made_by).write(held.folder)
                otherwise.pop_all()
                return Claim(mine, models, held, self._markers, self.results)
        return None


def by_id(experiments: Iterable[Experiment]) -> Left:
    """As :meth:`WorkQueue.take` wants them."""
    return OrderedDict((experiment.run_id, experiment) for experiment in experiments)


def unfinished(experiments: Sequence[Experiment], results: Path) -> list[Experiment]:
    """The experiments that have no run file. An empty, truncated or foreign file under a run's name is none."""
    there = _names(results) if len(experiments) > FEW else None

    def has_file(experiment: Experiment) -> bool:
        name = run_files.name_for(experiment.record)
        return (there is None or name in there) and run_files.is_run(results / name, experiment.run_id)

    return [experiment for experiment in experiments if not has_file(experiment)]


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()
