"""Markers of a working folder that other machines see: the work queue of an address."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import TypeVar

from lgbench.errors import StorageError
from lgbench.execution import lease
from lgbench.execution.address_claims import Claims
from lgbench.execution.lease import Lease, name_of
from lgbench.execution.markers import MARKERS, Markers
from lgbench.execution.publishing import AGAIN_SECONDS, WorkingFolder, names_of
from lgbench.execution.work_queue import UNFINISHED
from lgbench.experiment.experiment import Experiment

_Answer = TypeVar("_Answer")


class AddressMarkers(Markers):
    """The markers of a working folder, and claims at its address. A process takes a run by both."""

    def __init__(self, work: WorkingFolder, experiments: Sequence[Experiment]) -> None:
        super().__init__(work.folder / UNFINISHED / MARKERS)
        self._work = work
        self._names = {run: name for name, run in names_of(experiments).items()}
        self._claims = Claims(work.store)
        self._away_until = -math.inf
        self._said = False

    def taken(self) -> set[str]:
        here = super().taken()
        return here | self._answered(self._claims.taken, set[str]())

    def take(self, runs: Sequence[str], population: Lease) -> list[str]:
        """Those that another machine has published are brought, and count as taken."""
        mine = super().take(runs, population)
        agreed = self._answered(partial(self._agreed, mine, population), mine)
        super().give_back(population, mine[len(agreed) :])
        return agreed

    def give_back(self, population: Lease, runs: Iterable[str] | None = None) -> None:
        """The run files of a population are published before its claims end, so that nobody makes them meanwhile."""
        name = name_of(population.folder)
        own = [run for run in (super().taken() if runs is None else runs) if self.taker(run) == name]
        if own and not population.lost:
            self._answered(partial(self._released, own, population), None)
        super().give_back(population, own)

    def give_back_orphans(self, populations: Collection[str], watch: lease.Watch) -> None:
        super().give_back_orphans(populations, watch)
        self._answered(partial(self._claims.look_for_dead, self._names), None)

    def end(self) -> None:
        """To be called when nothing is claimed any more."""
        self._claims.end()

    def _agreed(self, runs: Sequence[str], population: Lease) -> list[str]:
        """The first runs of these that no other machine makes."""
        done = self._brought(runs)
        claimed = self._claims.take([run for run in runs if run not in done], population)
        self._brought(claimed)  # somebody may have published them just before
        return list(takewhile(lambda run: run in done or run in claimed, runs))

    def _brought(self, runs: Sequence[str]) -> set[str]:
        return self._work.bring_done({self._names[run]: run for run in runs})

    def _released(self, runs: Sequence[str], population: Lease) -> None:
        self._work.publish({self._names[run] for run in runs if run in self._names})
        self._claims.give_back(runs, population)

    def _answered(self, ask: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        """The answer of the server; `otherwise` where it does not answer, and for a while after that."""
        if time.monotonic() < self._away_until:
            return otherwise
        try:
            return ask()
        except (StorageError, OSError) as error:
            self._away_until = time.monotonic() + AGAIN_SECONDS
            if not self._said:
                self._said = True
                why = f"{self._work.address}: {error.strerror}" if isinstance(error, OSError) else str(error)
                self._work.say(f"{why}; meanwhile other machines may make the same runs, and the first file of each stays")
            return otherwise


@contextmanager
def shared(work: WorkingFolder, experiments: Sequence[Experiment]) -> Iterator[AddressMarkers]:
    """Markers for the work queue of a working folder, with heartbeats at the address until the block ends."""
    markers = AddressMarkers(work, experiments)
    try:
        yield markers
    finally:
        markers.end()
