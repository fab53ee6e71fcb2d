"""Training in bfloat16: the speed on each family, against float32.

A compiled stack of models, in one thread; processor time, so that other work on
the machine counts little. Both precisions take turns.

    python benchmarks/precision.py [--arch pre-norm] [--rounds 3] [--steps 40] [--models 4]
"""

import argparse

import torch
from sides import Side, compare
from stack_pace import stack_pace

from lgbench.execution.device import keep_freed_memory
from lgbench.experiment.record import PRECISIONS
from lgbench.extensions.registry import Registry

TASKS = ("set-complement", "max-retrieval", "dictionary-lookup", "dyck-2-5", "tomita-5")


def side(task: str, precision: str, asked: argparse.Namespace, registry: Registry) -> Side:
    """A function that trains a stack for some steps and gives its model-steps in a second of processor time."""
    pace = stack_pace(task, asked.arch, asked.models, asked.steps, registry, {}, precision=precision)
    return lambda: 1 / pace()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--arch", default="pre-norm")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--models", type=int, default=4)
    asked = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    registry = Registry.load()
    for task in TASKS:
        print(task)
        compare({p: side(task, p, asked, registry) for p in PRECISIONS}, asked.rounds, "model-steps/s", PRECISIONS[0])


if __name__ == "__main__":
    main()
