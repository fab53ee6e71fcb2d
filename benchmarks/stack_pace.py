"""How fast a stack of models trains in one thread of this process: shared by two benchmarks."""

import statistics
import time
from collections.abc import Callable
from itertools import islice

import torch

from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training.data import stream
from lgbench.training.population import Compiled, Population

CPU = torch.device("cpu")


def stack_pace(
    task: str,
    entry: str,
    models: int,
    steps: int,
    registry: Registry,
    changes: dict[str, str],
    compile: bool = True,
    precision: str = "float32",
) -> Callable[[], float]:
    """A function that trains a stack for some steps, and gives the median seconds of processor time of a step of one model."""
    experiments = plan(RunOptions(task, entry, seeds=range(models), set=changes, precision=precision), registry).experiments
    population = Population(experiments, CPU)
    batches = list(islice(stream([(e.task, e.seed) for e in experiments], experiments[0].train, CPU), steps))
    advance = Compiled(population, lambda sentence: None) if compile else population.advance

    def measured() -> float:
        times = []
        for batch in batches:
            started = time.process_time()
            advance(*batch.tensors)
            times.append(time.process_time() - started)
        return statistics.median(times) / models

    return measured
