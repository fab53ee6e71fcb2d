"""Number of training steps from which compiling the step saves time, which `lgbench.training.cost.STEPS_PER_PROGRAM` sets.

For stacks of several shapes, on a CPU with one thread as in a worker. Seconds of the first compiled step with an empty cache,
with the program in the cache, and with the program known to the process. Milliseconds of a later step, without and with
compiling. The retrieval tasks have batches of all their training lengths, and one program for all of them.

    python benchmarks/compilation.py [--steps 40] [--cases 8] [--device cuda]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from unittest import mock

import numpy as np
import torch
from rich.console import Console
from sides import WIDTH, table
from torch._inductor.utils import fresh_cache

from lgbench.execution.device import keep_freed_memory
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training import program
from lgbench.training.data import Step, stream
from lgbench.training.population import Compiled, Population
from lgbench.training.program import Captured, captures

CASES = [
    ("set-complement", "pre-norm", 1),
    ("set-complement", "peri-norm", 4),
    ("tomita-1", "post-norm", 1),
    ("tomita-4", "peri-norm", 2),
    ("dyck-8-5", "peri-norm", 2),
    ("max-retrieval", "peri-norm", 1),
    ("dictionary-lookup", "pre-norm", 1),
    ("dictionary-lookup", "deltanet-negative", 1),
]
"""Task, entry, models of a stack."""


def seconds(advance: Callable[..., object], batches: list[Step], device: torch.device) -> float:
    """The median time of one step; captured where training captures it."""
    step = Captured(advance, print) if captures(device) else advance
    times = [timed(lambda batch=batch: step(*batch.tensors), device) for batch in batches]
    return float(np.median(times[len(times) // 5 :]))


def timed(function: Callable[[], object], device: torch.device) -> float:
    """Seconds until the device has done it."""
    finish(device)
    started = time.perf_counter()
    function()
    finish(device)
    return time.perf_counter() - started


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def first_step(population: Population, batch: Step, device: torch.device) -> float:
    """Seconds of the first compiled step of a training."""
    compiled = Compiled(population, lambda sentence: None)
    return timed(lambda: compiled(*batch.tensors), device)


@contextmanager
def no_programs() -> Iterator[None]:
    """Inside, no program of an earlier command is found."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"LGBENCH_CACHE": folder}):
        yield


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--device", default="cpu")
    options.add_argument("--cases", type=int, default=len(CASES), help="how many of the stacks, from the first one on")
    chosen = options.parse_args()
    device = torch.device(chosen.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
        keep_freed_memory()
    registry = Registry.load()
    rows = table(1, "models", "compile, s", "cached, s", "known, s", "step, ms", "compiled", "pays from")
    for task, arch, seeds in CASES[: chosen.cases]:
        experiments = plan(RunOptions(task, arch, seeds=range(seeds), protocol="short", set={}), registry).experiments
        population = Population(experiments, device)
        members = [(e.task, e.seed) for e in experiments]
        batches = list(islice(stream(members, experiments[0].train, device), chosen.steps))
        with torch.no_grad(), fresh_cache(), no_programs():
            plain = seconds(population.advance, batches, device)
            needed, known = (first_step(population, batches[0], device) for _ in range(2))
            program._LATEST.clear()
            cached = first_step(population, batches[0], device)
            saved = plain - seconds(Compiled(population, lambda sentence: None), batches, device)
        rows.add_row(
            f"{task} {arch}",
            f"{len(experiments)}",
            *(f"{value:.1f}" for value in (needed, cached, known)),
            f"{plain * 1e3:.2f}",
            f"{(plain - saved) * 1e3:.2f}",
            f"{needed / saved:.0f}" if saved > 0 else "never",
        )
    Console(width=WIDTH).print(rows)


if __name__ == "__main__":
    main()
