"""The size of a stack: seconds of CPU for each model-step, with one thread, for stacks of several sizes.

A step of a stack starts each operator once for all its models, but the results of many models leave the cache of a core. The
last column says how large the largest result of an operator is: `lgbench.training.cost` bounds it by STACK_BYTES, and without
compiling by PLAIN_STACK_BYTES. Sizes take turns in this process, with one thread.

    python benchmarks/stacks.py [--rounds 5] [--steps 20] [--task tomita-4 ...] [--sizes 1,2,4,8,16] [--arch peri-norm]
        [--plain]
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


def side(task: str, arch: str, size: int, steps: int, registry: Registry, compile: bool) -> Callable[[], float]:
    """A function that trains a stack for some steps and gives the median seconds of a step of one model."""
    lengths = {"train.min_length": "16", "train.max_length": "16"} if task == "max-retrieval" else {}
    return stack_pace(task, arch, size, steps, registry, lengths, compile)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--task", action="append")
    options.add_argument("--sizes", default="1,2,4,8,16")
    options.add_argument("--arch", default="peri-norm")
    options.add_argument("--plain", action="store_true", help="without compiling")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    registry = Registry.load()
    rows = table(chosen.rounds, "models", "ms a model-step", "largest result, MB", "the rule's size")
    for task in chosen.task or TASKS:
        (experiment,) = plan(RunOptions(task, chosen.arch, seeds=[0]), registry).experiments
        each = cost.step_cost(experiment, CPU)
        sizes = [int(size) for size in chosen.sizes.split(",")]
        with torch.no_grad():
            sides = {size: side(task, chosen.arch, size, chosen.steps, registry, not chosen.plain) for size in sizes}
            found = [{size: measured() for size, measured in sides.items()} for _ in range(chosen.rounds + 1)][1:]
        for size in sizes:
            milliseconds = 1e3 * statistics.median(turn[size] for turn in found)
            ours = "*" if size == min(cost.stack_size(each, CPU, not chosen.plain), max(sizes)) else ""
            rows.add_row(task, f"{size}", f"{milliseconds:.2f}", f"{each.largest * size / 1e6:.2f}", ours)
    Console(width=WIDTH).print(rows)


if __name__ == "__main__":
    main()
