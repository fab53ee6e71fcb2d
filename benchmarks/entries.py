"""Training entries: the speed of each, against the first one.

A stack of models of each, in one thread, as it is or compiled; processor time, so that other work on the machine counts
little. Sides take turns. With --pack, all architectures and parts of this distribution come behind the named entries.

    python benchmarks/entries.py ENTRY [ENTRY ...] [--pack lgbench-linear] [--compile]
        [--rounds 3] [--steps 10] [--models 2] [--task tomita-5] [--length 40]
"""

import argparse

import torch
from sides import Side, compare
from stack_pace import stack_pace

from lgbench.contracts import PART_KINDS
from lgbench.execution.device import keep_freed_memory
from lgbench.extensions.registry import Registry


def provided(pack: str, registry: Registry) -> list[str]:
    """The names of all that a distribution provides and that can stand in an entry."""
    plugins = [plugin for plugin in registry.plugins if plugin.distribution.name == pack]
    return [name for plugin in plugins for kind in ("architecture", *PART_KINDS) for name in plugin.provides.get(kind, [])]


def side(entry: str, asked: argparse.Namespace, registry: Registry) -> Side:
    """A function that trains a stack for some steps and gives its model-steps in a second of processor time."""
    lengths = {"train.min_length": str(asked.length), "train.max_length": str(asked.length)}
    pace = stack_pace(asked.task, entry, asked.models, asked.steps, registry, lengths, asked.compile)
    return lambda: 1 / pace()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("entries", nargs="+")
    options.add_argument("--pack")
    options.add_argument("--compile", action="store_true")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--models", type=int, default=2)
    options.add_argument("--task", default="tomita-5")
    options.add_argument("--length", type=int, default=40)
    asked = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    registry = Registry.load()
    packed = provided(asked.pack, registry) if asked.pack else []
    if asked.pack and not packed:
        options.error(f"no architecture or part comes with {asked.pack}")
    entries = [*asked.entries, *packed]
    with torch.no_grad():
        compare({entry: side(entry, asked, registry) for entry in entries}, asked.rounds, "model-steps/s", asked.entries[0])


if __name__ == "__main__":
    main()
