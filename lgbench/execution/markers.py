"""Markers: which population has taken which run.

A run is taken by making its marker, a link to the population's name, which the file system lets one process do. Only the holder
of a population removes its markers, so no process judges another one's.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from lgbench.errors import RunFailed
from lgbench.execution import lease
from lgbench.execution.lease import Lease

MARKERS = "taken"
"""The folder of the markers of runs."""


class Markers:
    """The markers in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def taken(self) -> set[str]:
        """The runs that populations have taken."""
        try:
            return set(os.listdir(self.folder))
        except FileNotFoundError:
            return set()

    def taker(self, run: str) -> str | None:
        """The name of the population that has taken a run."""
        try:
            return os.readlink(self.folder / run)
        except OSError:  # nobody has, or it was given back in the meantime
            return None

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

    def give_back(self, population: Lease, runs: Iterable[str] | None = None) -> None:
        """Remove the markers of a population; None for `runs` where nobody knows which it has taken.

        Each is moved into the population's folder first, which fails if another process has taken the population.
        """
        name = lease.name_of(population.folder)
        for run in self.taken() if runs is None else runs:
            if self.taker(run) == name:
                gone = population.folder / f"{run}.given-back"
                with suppress(FileNotFoundError):
                    (self.folder / run).rename(gone)
                    gone.unlink()

    def give_back_orphans(self, populations: Collection[str], watch: lease.Watch) -> None:
        """Remove the markers of populations whose folder somebody has removed by hand, once that is certain."""
        for run in self.taken():
            name = self.taker(run)
            if name is not None and name not in populations and watch.stands_still(f"{run} {name}", b""):
                (self.folder / run).unlink(missing_ok=True)
