"""Training whole task families under the protocol short, as a share of what the cores reach in large products.

Every task of a family with three seeds, transformer+peri-norm with EMA and BEMA, the sampling included. The first fifth of the
steps, in which a program is compiled or loaded, is not timed. Models train as in `lgbench run`: one thread a worker, a stack of
the size that its rule says, a compiled step. The last column is the share of what all cores reach together in products of large
float32 matrices, measured in the same rounds.

    python benchmarks/training.py [--rounds 5] [--steps 200] [--family tomita ...]
"""

import argparse
import os
import subprocess
import sys
import time

import torch
from sides import show, take_turns
from torch.utils.flop_counter import FlopCounterMode

from lgbench.execution.device import keep_freed_memory
from lgbench.execution.scheduler import grouped
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training.cost import stack_size, step_cost
from lgbench.training.train import train

FAMILIES = ("tomita", "dyck", "set-complement")
SEEDS = 3


class Clock:
    """Notes when each step was done, and gives the rate of all but the first fifth of each training."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.steps = self.seconds = 0.0

    def tick(self, step: int, loss: object = None) -> None:
        self.times.append(time.perf_counter())

    def ended(self, models: int, of: int) -> None:
        """A training of so many models has ended, and would go on with others until it had trained `of` of them."""
        first = len(self.times) // 5
        self.steps += of * (len(self.times) - 1 - first)
        self.seconds += of / models * (self.times[-1] - self.times[first])
        self.times = []

    def rate(self) -> float:
        """Model-steps a second."""
        return self.steps / self.seconds


def experiments(family: str, steps: int):  # type: ignore[no-untyped-def]
    asked = RunOptions(family, "peri-norm", seeds=range(SEEDS), protocol="short", set={"train.steps": str(steps)})
    return plan(asked, Registry.load()).experiments


def mean_flops(family: str, steps: int) -> float:
    """Floating-point operations of products in a model-step, the mean over a family's models."""
    flops, models = 0, 0
    for group in grouped(experiments(family, steps)):
        with FlopCounterMode(display=False) as counter:
            step_cost(group[0], torch.device("cpu"))
        flops += counter.get_total_flops() * len(group)
        models += len(group)
    return flops / models


def stack(family: str, steps: int, workers: int) -> None:
    """In a worker process: train one stack of each group, each as long as a worker's share of it, and print their rate."""
    device, clock = torch.device("cpu"), Clock()
    torch.set_num_threads(1)
    keep_freed_memory()
    for group in grouped(experiments(family, steps)):
        share = -(-len(group) // workers)
        size = int(min(share, stack_size(step_cost(group[0], device), device, compiled=True)))
        train(group[:size], device, clock.tick, compile=True, models=size)
        clock.ended(size, share)
    print(clock.rate())


def products() -> None:
    """In a worker process: print the floating-point operations a second of large float32 products."""
    torch.set_num_threads(1)
    size, rounds = 768, 60
    square = torch.randn(size, size)
    for _ in range(rounds // 3):
        square @ square
    started = time.perf_counter()
    for _ in range(rounds):
        square @ square
    print(rounds * 2 * size**3 / (time.perf_counter() - started))


def together(commands: list[list[str]], threads: int) -> float:
    """The sum of the rates that processes print which run at the same time."""
    environ = os.environ | {"OMP_NUM_THREADS": str(threads)}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) for command in commands]
    return sum(float(process.communicate()[0].split()[-1]) for process in started)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--family", action="append", choices=FAMILIES)
    options.add_argument("--stack", nargs=2, help=argparse.SUPPRESS)
    options.add_argument("--products", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.stack:
        stack(chosen.stack[0], chosen.steps, int(chosen.stack[1]))
        return
    if chosen.products:
        products()
        return
    workers = torch.get_num_threads()
    for family in chosen.family or FAMILIES:
        here = [sys.executable, __file__, "--steps", str(chosen.steps), "--stack", family, str(workers)]
        sides = {
            f"lgbench, {family}, {workers} workers": lambda here=here: together([here] * workers, 1),
            "peak": lambda: together([[sys.executable, __file__, "--products"]] * workers, 1),
        }
        results = take_turns(sides, chosen.rounds)
        peak, flops = results.pop("peak").rate, mean_flops(family, chosen.steps)
        share = {
            f"of the peak, {peak / 1e9:.0f} GFLOP/s": lambda name, rate, peak=peak, flops=flops: f"{rate * flops / peak:.0%}"
        }
        show(results, chosen.rounds, "model-steps/s", "the first", share)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
