"""Dispatch of populations to the processes that train and test them.

The scheduler says which populations are left. A dispatcher locks each by taking it, has it trained, and reports its end. It
ends each population by :func:`ended`, also after a failure, and trains one at a time in one process, since initial weights come
from torch's global generator.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lgbench.errors import LgbenchError, lacks_memory
from lgbench.execution.work_queue import LockedPopulation, PlannedPopulation
from lgbench.experiment.experiment import Experiment

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


RunPopulation = Callable[[PlannedPopulation, Sequence[Experiment], Path], Iterator[Path]]
"""Function from planned population, experiments and folder of the checkpoint to run files, each yielded when written."""


class Dispatcher(Protocol):
    """Dispatch of populations to processes: :class:`lgbench.execution.workers.Workers` or an executor's jobs."""

    def run(self, left: Iterable[LockedPopulation | None], run_population: RunPopulation) -> Iterator[Done]:
        """Run every population of `left`.

        `left` is lazy and locks each population when taken. None means that other commands train all remaining runs, some of
        which may become free: take the next element after WAIT_SECONDS.
        """


class InProcess:
    """Dispatcher for training in this process, one population after another."""

    def run(self, left: Iterable[LockedPopulation | None], run_population: RunPopulation) -> Iterator[Done]:
        for population in left:
            if population is None:
                time.sleep(WAIT_SECONDS)
                continue
            written: list[Path] = []
            try:
                with population:
                    for path in run_population(population.planned, population.experiments, population.folder):
                        written.append(path)
            except Exception as error:  # a plugin's model may raise anything
                yield Done(population, written, error)
            else:
                yield Done(population, written)


class WorkerError(Exception):
    """Error in another process, as a sentence with type, file and line."""


class WorkerKilled(WorkerError):
    """Death of a worker process in the middle of a population, most often for lack of memory."""


def located(error: Exception) -> str:
    """Message of an error with file and line, for the plugin's author."""
    if isinstance(error, WorkerError | LgbenchError):  # the message is a sentence already
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def out_of_memory(error: Exception) -> bool:
    """Whether an error is a lack of memory, so that a smaller stack may succeed."""
    return isinstance(error, WorkerKilled) or lacks_memory(error)


def ended(population: LockedPopulation, written: list[Path], error: Exception | None) -> Done:
    """Release a population after training in another process."""
    with suppress(Exception), population:
        if error:
            raise error
    return Done(population, written, error)
