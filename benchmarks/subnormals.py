"""Subnormal numbers: training with them, as the processor computes by default, against training without, as runs do.

Two trainings of one model under `standard` take turns, in one thread, a round of steps each. Saturated attention has subnormal
gradients only after a while, so the rounds show when they begin to count. Milliseconds of processor time.

    python benchmarks/subnormals.py [--task max-retrieval] [--arch pre-norm] [--rounds 6] [--steps 1000]
"""

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

import torch
from rich.console import Console
from rich.table import Table
from sides import WIDTH

from lgbench.execution.device import as_in_runs, subnormals_are_zero
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training.data import stream
from lgbench.training.population import Compiled, Population

CPU = torch.device("cpu")
WARM = 100
"""Steps before the first round, in which programs are made."""


def side(asked: argparse.Namespace, registry: Registry, how: Callable[[], AbstractContextManager[None]]) -> Callable[[], float]:
    """A function that goes on with a training for a round of steps, and gives the seconds of a step."""
    (experiment,) = plan(RunOptions(asked.task, asked.arch, protocol="standard", seeds=[0]), registry).experiments
    population = Population([experiment], CPU)
    advance = Compiled(population, lambda sentence: None)
    batches = stream([(experiment.task, experiment.seed)], experiment.train, CPU)
    for batch in islice(batches, WARM):
        advance(*batch.tensors)

    def measured() -> float:
        seconds = 0.0
        for batch in islice(batches, asked.steps):
            with how():
                started = time.process_time()
                advance(*batch.tensors)
                seconds += time.process_time() - started
        return seconds / int(asked.steps)

    return measured


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--task", default="max-retrieval")
    options.add_argument("--arch", default="pre-norm")
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--steps", type=int, default=1000)
    asked = options.parse_args()
    registry = Registry.load()
    rows = Table("to step", "with, ms a step", "without", "ratio")
    with torch.no_grad(), as_in_runs(CPU):
        torch.set_flush_denormal(False)  # as a process begins; one of the sides takes them for zero
        sides = [side(asked, registry, how) for how in (nullcontext, subnormals_are_zero)]
        for turn in range(1, asked.rounds + 1):
            with_them, without = (measured() for measured in sides)
            rows.add_row(
                f"{WARM + turn * asked.steps}", f"{1e3 * with_them:.2f}", f"{1e3 * without:.2f}", f"{with_them / without:.1f}"
            )
    Console(width=WIDTH).print(rows)


if __name__ == "__main__":
    main()
