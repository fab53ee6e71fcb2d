"""Drawing the contexts of a training step, as a share of the step: all installed tasks, or some of them.

A step of the baseline without the drawing, and `task.sample` for as many steps at once as training asks for. Both at the task's
longest training length, with the batch of the protocol, in one thread; processor time, so that other work on the machine counts
little. Sides take turns. Goal: a tenth. Where lengths vary from step to step, training draws fewer steps at once than are drawn
here, and the share in a run is higher.

    python benchmarks/drawing.py [--tasks tomita-5 ...] [--pack lgbench-languages] [--arch pre-norm] [--compile]
        [--rounds 3] [--steps 5] [--models 2] [--protocol short]
"""

import argparse
import time
from functools import partial

import torch
from rich.console import Console
from sides import WIDTH, Side, number, table, take_turns
from stack_pace import stack_pace

from lgbench import Random, Task
from lgbench.errors import UsageError
from lgbench.execution.device import keep_freed_memory
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.registry import Registry
from lgbench.randomness import key_of
from lgbench.training.data import CHUNK, DRAWN_NUMBERS


def drawing_pace(task: Task, batch: int, models: int) -> float:
    """Seconds of processor time in which the contexts of one step of one model are drawn."""
    length = task.train_lengths[1]
    keys = [key_of(seed, task.name) for seed in range(models)]
    numbers = task.sample(length, Random.stacked(keys[:1], 1)).distribution.numel()
    steps = range(max(1, min(CHUNK, DRAWN_NUMBERS["cpu"] // (numbers * batch * models))))
    started = time.process_time()
    task.sample(length, Random.stacked(keys, batch, steps))
    return (time.process_time() - started) / (len(steps) * models)


def sides(task: Task, asked: argparse.Namespace, registry: Registry) -> dict[str, Side]:
    """Training and drawing, in model-steps a second of processor time."""
    length = str(task.train_lengths[1])
    changes = {"train.min_length": length, "train.max_length": length}
    train = stack_pace(task.name, asked.arch, asked.models, asked.steps, registry, changes, asked.compile)
    draw = partial(drawing_pace, task, PROTOCOLS[asked.protocol].settings(task)[0].batch, asked.models)
    return {"train": lambda: 1 / train(), "draw": lambda: 1 / draw()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", nargs="+", metavar="TASK")
    options.add_argument("--pack", help="only the tasks of this distribution")
    options.add_argument("--arch", default="pre-norm")
    options.add_argument("--compile", action="store_true")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--models", type=int, default=2)
    options.add_argument("--protocol", choices=PROTOCOLS, default="short")
    asked = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    registry = Registry.load()
    packed = {name for plugin in registry.plugins if plugin.distribution.name == asked.pack for name in plugin.provides["task"]}
    rows = table(asked.rounds, "draws, model-steps/s", "trains, model-steps/s", "share of a step", "min", "max")
    for name in asked.tasks or [name for name in registry.tasks.names() if not asked.pack or name in packed]:
        try:
            with torch.no_grad():
                trained, drawn = take_turns(sides(registry.tasks[name], asked, registry), asked.rounds).values()
        except UsageError as reason:  # an architecture for other inputs
            print(f"{name}: {reason}")
            continue
        shares = f"{1 / drawn.ratio:.3f}", f"{1 / drawn.highest:.3f}", f"{1 / drawn.lowest:.3f}"
        rows.add_row(name, number(drawn.rate), number(trained.rate), *shares)
    Console(width=WIDTH).print(rows)


if __name__ == "__main__":
    main()
