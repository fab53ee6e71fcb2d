"""The size of a stack: seconds of CPU for each model-step, with one thread, for stacks of several sizes.

A step of a stack starts each operator once for all its models, but the results of many models leave the cache of a core. The
last column says how large the largest result of an operator is, which `lgbench.training.cost.STACK_BYTES` bounds. Sizes take
turns, each compiled and in this process, with one thread.

    python benchmarks/stacks.py [--rounds 5] [--steps 20] [--task tomita-4 ...] [--sizes 1,2,4,8,16]
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from rich.console import Console
from sides import WIDTH, table
from stack_pace import CPU, stack_pace

from lgbench.execution.device import keep_freed_memory
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training import cost

TASKS = ("tomita-4", "dyck-8-5", "set-complement", "max-retrieval")


def side(task: str, size: int, steps: int, registry: Registry) -> Callable[[], float]:
    """A function that trains a stack for some steps and gives the median seconds of a step of one model."""
    lengths = {"train.min_length": "16", "train.max_length": "16"} if task == "max-retrieval" else {}
    return stack_pace(task, "peri-norm", size, steps, registry, lengths)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--task", action="append")
    options.add_argument("--sizes", default="1,2,4,8,16")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    registry = Registry.load()
    rows = table(chosen.rounds, "models", "ms a model-step", "largest result, MB", "the rule's size")
    for task in chosen.task or TASKS:
        (experiment,) = plan(RunOptions(task, "peri-norm", seeds=[0]), registry).experiments
        each = cost.step_cost(experiment, CPU)
        sizes = [int(size) for size in chosen.sizes.split(",")]
        with torch.no_grad():
            sides = {size: side(task, size, chosen.steps, registry) for size in sizes}
            found = [{size: measured() for size, measured in sides.items()} for _ in range(chosen.rounds + 1)][1:]
        for size in sizes:
            milliseconds = 1e3 * statistics.median(turn[size] for turn in found)
            ours = "*" if size == min(cost.stack_size(each, CPU), max(sizes)) else ""
            rows.add_row(task, f"{size}", f"{milliseconds:.2f}", f"{each.largest * size / 1e6:.2f}", ours)
    Console(width=WIDTH).print(rows)


if __name__ == "__main__":
    main()
