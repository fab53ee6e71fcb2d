"""Claims at an address: machines that make runs for it share the work, as the commands of one machine do in a folder.

A machine claims a run by making an object where nothing of its name is, which the server lets one of them do. The object
names the population that makes the run. Whoever trains that population replaces another object every few seconds, its
heartbeat. Others watch it by their own clocks. Once it stands still they claim the run in the next round, by an object of the
next number. So nobody removes a claim of somebody else, who may be alive.

Claims save work, and keep nothing safe: whoever makes a run file, none is ever replaced. So a command whose server does not
answer goes on without them.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from lgbench.errors import NoAccess, StorageError
from lgbench.execution import lease
from lgbench.execution.lease import Lease, name_of

if TYPE_CHECKING:
    from lgbench.results.objects import Store

CLAIMS = ".claims"
"""The folder of claims and heartbeats at an address."""
BEAT = "beat"
BEAT_SECONDS = 15.0
"""Between two heartbeats at an address. A population is taken for dead after `lease.LEASE_SECONDS` without one."""
LOOK_SECONDS = 5.0
"""Between two lists of claims, at least."""


class _Claim(NamedTuple):
    """One object. A claim that was given back and made anew has another tag."""

    run: str
    round: int
    tag: str

    @property
    def name(self) -> str:
        return f"{CLAIMS}/{self.run}.{self.round}"


class Claims:
    """The claims at an address, as one process sees them. Every method raises StorageError where the server does not answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked = -math.inf
        self._claims: dict[str, list[_Claim]] = {}
        """Of each run, by rounds: the last one counts."""
        self._beats: dict[str, str] = {}
        """The tags of heartbeats by their populations."""
        self._makers: dict[_Claim, str] = {}
        """Which population a claim names, of those that were read."""
        self._dead: set[_Claim] = set()
        self._watch = lease.Watch()
        self._heart = _Heart(store)

    def taken(self) -> set[str]:
        """The runs that populations on any machine make."""
        self._look()
        return {run for run, claims in self._claims.items() if claims[-1] not in self._dead}

    def take(self, runs: Sequence[str], population: Lease) -> list[str]:
        """Claim runs for a population, up to the first that another one makes; returns those that were claimed."""
        self._look()
        taken = list(takewhile(lambda run: self._take(run, population), runs))
        if not taken and self._heart.beats_for(population):
            self._rest(name_of(population.folder))
        return taken

    def give_back(self, runs: Iterable[str], population: Lease) -> None:
        """Remove the claims of a population on these runs, and those of dead ones; with its last claim its heartbeat."""
        self._look(now=True)
        name = name_of(population.folder)
        dead = set[str]()
        for run in runs:
            if (claims := self._claims.get(run)) and self._maker(claims[-1]) == name:
                dead |= {self._maker(claim) for claim in claims[:-1]}
                for claim in claims:  # its own is the last one
                    self._remove(claim.name)
                del self._claims[run]
        self._rest(name)
        for other in dead - {"", name}:
            self._rest(other)

    def look_for_dead(self, runs: Collection[str]) -> None:
        """Find out which of these runs are claimed for populations that nobody trains any more."""
        self._look()
        for latest in [claims[-1] for run, claims in self._claims.items() if run in runs]:
            population = self._maker(latest)
            if self._watch.stands_still(population, self._beats.get(population, "").encode()):
                self._dead.add(latest)

    def end(self) -> None:
        self._heart.end()

    def _take(self, run: str, population: Lease) -> bool:
        name, claims = name_of(population.folder), self._claims.get(run, [])
        if claims and claims[-1] not in self._dead:
            if self._maker(claims[-1]) != name:
                return False
            self._heart.begin(population)  # it was another process's of this machine
            return True
        self._heart.begin(population)
        mine = _Claim(run, claims[-1].round + 1 if claims else 0, "")
        made = self._store.put(mine.name, name.encode())
        if not made and self._maker(mine) != name:  # else the answer to the first try got lost
            self._looked = -math.inf
            return False
        mine = mine._replace(tag=made.tag if made else "")
        self._makers[mine] = name
        self._claims[run] = [*claims, mine]
        return True

    def _rest(self, population: str) -> None:
        """Remove the heartbeat of a population without claims."""
        if not any(self._makers.get(claims[-1]) == population for claims in self._claims.values()):
            self._heart.stop(population)
            self._remove(f"{CLAIMS}/{population}.{BEAT}")

    def _remove(self, name: str) -> None:
        """Where this account may not do it, others take the population for dead after a while."""
        with suppress(NoAccess):
            self._store.remove(name)

    def _maker(self, claim: _Claim) -> str:
        """The population that a claim names; empty where it was given back in the meantime."""
        if claim not in self._makers:
            found = self._store.get(claim.name)
            if not found:
                return ""
            self._makers[claim] = found[0].decode(errors="replace")
        return self._makers[claim]

    def _look(self, *, now: bool = False) -> None:
        """List what is claimed, unless this was done a moment ago."""
        if not now and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        found: dict[str, list[_Claim]] = defaultdict(list)
        self._beats = {}
        for path, about in self._store.list(CLAIMS).items():
            name, _, end = path.rpartition("/")[2].rpartition(".")
            if end == BEAT:
                self._beats[name] = about.tag
            elif end.isdecimal():
                found[name].append(_Claim(name, int(end), about.tag))
        self._claims = {run: sorted(claims) for run, claims in found.items()}
        there = {claim for claims in found.values() for claim in claims}
        self._makers = {claim: maker for claim, maker in self._makers.items() if claim in there}
        self._dead &= there
        self._looked = time.monotonic()


class _Heart:
    """The heartbeats of all populations that this process has claimed runs for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, name=f"heartbeat at {store.address}", daemon=True)

    def beats_for(self, population: Lease) -> bool:
        return name_of(population.folder) in self._held

    def begin(self, population: Lease) -> None:
        """The first heartbeat of a population; others follow by themselves."""
        name = name_of(population.folder)
        if self._held.get(name) is not population:
            self._held[name] = population
            self._beat(name)
        if not self._thread.ident:
            self._thread.start()

    def stop(self, name: str) -> None:
        """After this no heartbeat of a population comes from this process."""
        with self._lock:
            self._held.pop(name, None)

    def end(self) -> None:
        self._ended.set()
        if self._thread.ident:
            self._thread.join()

    def _keep_beating(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            for name, population in list(self._held.items()):
                if population.lost or population.ended:
                    self._held.pop(name, None)
                    continue
                with suppress(StorageError):  # the server may answer again before the others take the population for dead
                    self._beat(name)

    def _beat(self, name: str) -> None:
        with self._lock:
            if name in self._held:
                self._store.replace(f"{CLAIMS}/{name}.{BEAT}", uuid4().hex.encode())
