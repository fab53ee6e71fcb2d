"""Dispatch of populations to the processes that train and test them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lgbench.execution.work_queue import LockedPopulation

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
