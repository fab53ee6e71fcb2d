"""Executors: where populations are trained and tested.

The scheduler says which populations are left. An executor runs them and reports each as it ends. Determinism, claims,
checkpoints and run files are the scheduler's and the population's; starting, placing and retrying are the executor's.

An executor keeps two rules. It runs each population inside `with work.claim`, which releases the population at its end, after a
failure too. And it runs one population at a time in one process, for initial weights come from torch's global generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lgbench.execution.scheduler import Work


@dataclass(frozen=True)
class Done:
    """One population that ended. `error` is the exception that stopped it; None after success."""

    work: Work
    written: list[Path]
    """The run files that it wrote, also where it failed later."""
    error: Exception | None = None


RunPopulation = Callable[[Work], Iterator[Path]]
"""Train and test one population: yields each run file when it is written."""


class Executor(Protocol):
    """Runs populations."""

    def run(self, left: Iterable[Work], run_population: RunPopulation) -> Iterator[Done]:
        """Run every population of `left`. `left` is lazy: each population is claimed when it is taken from it."""


class LocalExecutor:
    """Runs populations one after the other in this process."""

    def run(self, left: Iterable[Work], run_population: RunPopulation) -> Iterator[Done]:
        for work in left:
            written: list[Path] = []
            try:
                with work.claim:
                    for path in run_population(work):
                        written.append(path)
            except Exception as error:  # a plugin's model may raise anything
                yield Done(work, written, error)
            else:
                yield Done(work, written)
