"""Training linear recurrences: each attention of lgbench-linear in the transformer, against softmax in it.

A stack of models, in one thread, as it is and compiled; processor time, so that other work on the machine counts little. Sides
take turns. The goal is a third of the transformer's speed, for models of the same size.

    python benchmarks/linear.py [--rounds 3] [--steps 20] [--models 2] [--task tomita-5] [--length 40] [--only deltanet,mlstm]
"""

import argparse
from collections.abc import Iterator

import torch
from rich.console import Console
from sides import Side, compare
from stack_pace import stack_pace

from lgbench.execution.device import keep_freed_memory
from lgbench.extensions.registry import Registry
from lgbench_linear import ATTENTIONS


def side(entry: str, compile: bool, asked: argparse.Namespace, registry: Registry) -> Side:
    """A function that trains a stack for some steps and gives its model-steps in a second of processor time."""
    lengths = {"train.min_length": str(asked.length), "train.max_length": str(asked.length)}
    pace = stack_pace(asked.task, entry, asked.models, asked.steps, registry, lengths, compile)
    return lambda: 1 / pace()


def sides(compile: bool, asked: argparse.Namespace, registry: Registry) -> Iterator[tuple[str, Side]]:
    names = [attention.name for attention in ATTENTIONS if not asked.only or attention.name in asked.only.split(",")]
    for entry in ("softmax", *names):
        yield entry, side(entry, compile, asked, registry)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--models", type=int, default=2)
    options.add_argument("--task", default="tomita-5")
    options.add_argument("--length", type=int, default=40)
    options.add_argument("--only")
    asked = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    registry = Registry.load()
    for compile in (False, True):
        Console().print("compiled" if compile else "not compiled")
        with torch.no_grad():
            compare(dict(sides(compile, asked, registry)), asked.rounds, "model-steps/s", "softmax")


if __name__ == "__main__":
    main()
