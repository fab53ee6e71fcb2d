"""Populations taken from the work queue of a folder, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from helpers.plain_training import CPU
from helpers.run_files import simulated, write_rows
from lgbench.execution.work_queue import CHECKPOINT, LockedPopulation, WorkQueue, path_of
from lgbench.experiment.experiment import Experiment
from lgbench.lock import machine


def queue_on(folder: Path, experiments: Sequence[Experiment]) -> WorkQueue:
    """Queue of a command that asks for these experiments."""
    return WorkQueue(folder, experiments, CPU)


def take(folder: Path, experiments: Sequence[Experiment], most: int = 100, **options) -> LockedPopulation | None:
    left = {experiment.run_id: experiment for experiment in experiments}
    return queue_on(folder, experiments).take(left, most, **options)


@contextmanager
def taken(*asked, **options) -> Iterator[LockedPopulation]:
    """Context with a population of :func:`take`, which ends as a training does: whole, or by an error."""
    population = take(*asked, **options)
    assert population
    try:
        yield population
    except BaseException as error:
        population.release(error)
        raise
    population.release()


def finish(folder: Path, experiments: Sequence[Experiment]) -> None:
    """Write a run file of each experiment."""
    for experiment in experiments:
        write_rows(path_of(experiment, folder), simulated({8: 0.5}, run_id=experiment.run_id))


def checkpoint_of(population: LockedPopulation) -> Path:
    return population.folder / CHECKPOINT


def abandon(population: LockedPopulation, checkpoint: bool = True) -> Path:
    """Leave a population as a killed process does: all files stay, with a lock of a process that has ended."""
    if checkpoint:
        checkpoint_of(population).write_text("a state")
    population.lock.release()
    population.lock.path.write_text(f"{machine()} {2**22} {'0' * 32}")  # no system gives a process that number
    return population.folder
