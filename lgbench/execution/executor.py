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
from lgbench.execution.populations import PlannedPopulation
from lgbench.execution.work_queue import LockedPopulation
from lgbench.experiment.experiment import Experiment

WAIT_SECONDS = 1.0
"""Time between two looks at the locks of other commands, once nothing else is left to do."""


@dataclass(frozen=True)
class Done:
    """Population that has ended."""

    population: LockedPopulation
    written: list[Path]
    """Run files of this command, also where the population failed later."""
    error: Exception | None = None
    """Exception that stopped the population."""


RunPopulation = Callable[[PlannedPopulation, Sequence[Experiment], Path], Iterator[Path]]
"""Function that trains and tests a population, with its checkpoint in a folder, and yields each run file when it is written."""


class Dispatcher(Protocol):
    """Dispatch of populations to processes: :class:`lgbench.execution.workers.Workers` or an executor's jobs."""

    def run(self, left: Iterable[LockedPopulation | None], run_population: RunPopulation) -> Iterator[Done]:
        """Run every population of `left`.

        `left` is lazy: each population is locked when it is taken. None means that no population is free now, and that one may
        be when another command ends: take the next after WAIT_SECONDS.
        """


class InProcess:
    """Runs populations one after the other in this process."""

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
    """An error in another process, as a sentence that names its type and place."""


class WorkerKilled(WorkerError):
    """A worker process ended in the middle of a population, most often for lack of memory."""


def located(error: Exception) -> str:
    """An error with the file and line that raised it, for the plugin's author."""
    if isinstance(error, WorkerError | LgbenchError):  # its message is a sentence already
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory did not suffice, which fewer models at once may mend."""
    return isinstance(error, WorkerKilled) or lacks_memory(error)


def ended(population: LockedPopulation, written: list[Path], error: Exception | None) -> Done:
    """End a population that ran in another process."""
    with suppress(Exception), population:
        if error:
            raise error
    return Done(population, written, error)
