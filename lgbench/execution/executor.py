"""Executors: where populations are trained and tested.

The scheduler says which populations are left. An executor runs them and reports each as it ends. Determinism, claims,
checkpoints and run files are the scheduler's and the population's; starting, placing and retrying are the executor's.

An executor keeps two rules. It ends each claim by `ended`, after a failure too. And it runs one population at a time in one
process, for initial weights come from torch's global generator.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lgbench.errors import LgbenchError, lacks_memory
from lgbench.execution.scheduler import Assignment, Work

WAIT_SECONDS = 1.0
"""Between two looks at the claims of other commands, once nothing else is left to do."""


@dataclass(frozen=True)
class Done:
    """One population that ended. `error` is the exception that stopped it; None after success."""

    work: Work
    written: list[Path]
    """The run files that it wrote, also where it failed later."""
    error: Exception | None = None


RunPopulation = Callable[[Assignment], Iterator[Path]]
"""Train and test one population: yields each run file when it is written."""


class Executor(Protocol):
    """Runs populations."""

    def run(self, left: Iterable[Work | None], run_population: RunPopulation) -> Iterator[Done]:
        """Run every population of `left`.

        `left` is lazy: each population is claimed when it is taken from it. None means that no population is free now, and that
        one may be when another command ends: take the next after WAIT_SECONDS.
        """


class InProcess:
    """Runs populations one after the other in this process."""

    def run(self, left: Iterable[Work | None], run_population: RunPopulation) -> Iterator[Done]:
        for work in left:
            if work is None:
                time.sleep(WAIT_SECONDS)
                continue
            written: list[Path] = []
            try:
                with work.claim:
                    for path in run_population(work.assignment):
                        written.append(path)
            except Exception as error:  # a plugin's model may raise anything
                yield Done(work, written, error)
            else:
                yield Done(work, written)


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


def ended(work: Work, written: list[Path], error: Exception | None) -> Done:
    """End the claim of a population that ran in another process."""
    try:
        with work.claim:
            if error:
                raise error
    except Exception as raised:
        return Done(work, written, raised)
    return Done(work, written)
