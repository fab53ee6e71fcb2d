"""Training architectures of transformers: each entry of lgbench-huggingface, against the built-in transformer.

A stack of models, in one thread, as it is or compiled; processor time, so that other work on the machine counts little. Sides
take turns.

    python benchmarks/huggingface.py [--rounds 3] [--steps 5] [--models 3] [--task tomita-5] [--length 40] [--only llama]
        [--compile]
"""

import argparse

import torch
from sides import Side, compare
from stack_pace import stack_pace

from lgbench.execution.device import keep_freed_memory
from lgbench.extensions.registry import Registry
from lgbench_huggingface.entries import ARCHITECTURES


def side(entry: str, asked: argparse.Namespace, registry: Registry) -> Side:
    """A function that trains a stack for some steps and gives its model-steps in a second of processor time."""
    lengths = {"train.min_length": str(asked.length), "train.max_length": str(asked.length)}
    pace = stack_pace(asked.task, entry, asked.models, asked.steps, registry, lengths, asked.compile)
    return lambda: 1 / pace()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--models", type=int, default=3)
    options.add_argument("--task", default="tomita-5")
    options.add_argument("--length", type=int, default=40)
    options.add_argument("--only")
    options.add_argument("--compile", action="store_true")
    asked = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    registry = Registry.load()
    names = [each.name for each in ARCHITECTURES if not asked.only or each.name in asked.only.split(",")]
    sides = {entry: side(entry, asked, registry) for entry in ("pre-norm", "rope", *names)}
    with torch.no_grad():
        compare(sides, asked.rounds, "model-steps/s", "pre-norm")


if __name__ == "__main__":
    main()
