"""How time and memory grow with population, length and width, each with its fitted exponent.

Training: milliseconds of a step, compiled or not, and bytes alive at once, against the number of models, the context's length
and the model's width. Evaluation: seconds a context, and bytes alive at once, against length up to 2^14. The exponent is the
slope of a line through the logarithms of the upper half; how a leaderboard grows is in leaderboard.py.

    python benchmarks/scaling.py [--repeats 9] [--device cuda]
"""

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from rich.console import Console
from sides import WIDTH, table

from lgbench import Random
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.training.cost import Meter
from lgbench.training.data import stream
from lgbench.training.population import Population

POPULATIONS = (1, 2, 4, 8, 16, 32, 64)
TRAINED_LENGTHS = (16, 32, 64, 128, 256)
WIDTHS = (16, 32, 64, 128, 256)
TESTED_LENGTHS = tuple(2**k for k in range(8, 15))

Point = tuple[float, int]
"""Seconds, bytes."""


def median(function: Callable[[], object], repeats: int) -> float:
    """Seconds of one call, after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))


def peak(function: Callable[[], object]) -> int:
    """Bytes of results alive at once in one call."""
    with Meter() as meter:
        function()
    return meter.peak


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of log(value) against log(size), from the upper half of the sizes."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


class Training:
    """One training step of populations that differ in one respect."""

    def __init__(self, registry: Registry, device: torch.device, repeats: int) -> None:
        self.registry, self.device, self.repeats = registry, device, repeats

    def step(self, models: int = 4, **changes: int) -> Point:
        settings = {"train.max_length": "40"} | {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
        request = RunOptions("dyck-2-3", "peri-norm", average=[], seeds=range(models), protocol="short", set=settings)
        experiments = plan(request, self.registry).experiments
        population = Population(experiments, self.device)
        members = [(experiment.task, experiment.seed) for experiment in experiments]
        batch = next(stream(members, experiments[0].train, self.device)).tensors
        with torch.no_grad():
            seconds = median(lambda: population.advance(*batch), self.repeats)
            return seconds, peak(lambda: population.advance(*batch))


class Evaluation:
    """One model's answers to contexts of one length."""

    def __init__(self, registry: Registry, device: torch.device, repeats: int) -> None:
        self.registry, self.device, self.repeats = registry, device, repeats

    def contexts(self, task: str, arch: str, length: int) -> Point:
        (experiment,) = plan(RunOptions(task, arch, average=[], seeds=(0,), protocol="short"), self.registry).experiments
        model = experiment.build().to(self.device)
        inputs = experiment.task.sample(length, Random(1, device=self.device)).inputs
        with torch.inference_mode():
            seconds = median(lambda: model(inputs), self.repeats)
            return seconds, peak(lambda: model(inputs))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=9)
    options.add_argument("--device", default="cpu")
    chosen = options.parse_args()
    registry, device = Registry.load(), torch.device(chosen.device)
    training, evaluation = (kind(registry, device, chosen.repeats) for kind in (Training, Evaluation))
    curves: dict[str, tuple[Sequence[int], Callable[[int], Point]]] = {
        "training step against models": (POPULATIONS, lambda n: training.step(models=n)),
        "training step against length": (TRAINED_LENGTHS, lambda n: training.step(train_max_length=n)),
        "training step against width": (WIDTHS, lambda n: training.step(model_width=n)),
        "max-retrieval, one context, against length": (
            TESTED_LENGTHS,
            lambda n: evaluation.contexts("max-retrieval", "peri-norm", n),
        ),
        "dyck-2-3, one context, against length": (
            TESTED_LENGTHS,
            lambda n: evaluation.contexts("dyck-2-3", "peri-norm", n),
        ),
    }
    rows = table(chosen.repeats, "sizes", "ms", "MB alive", "exponent of time", "of memory", device=str(device))
    for name, (sizes, measure) in curves.items():
        points = [measure(size) for size in sizes]
        times, memory = [seconds for seconds, _ in points], [size for _, size in points]
        rows.add_row(
            name,
            f"{sizes[0]} .. {sizes[-1]}",
            " ".join(f"{1e3 * seconds:.3g}" for seconds in times),
            " ".join(f"{size / 1e6:.3g}" for size in memory),
            f"{exponent(sizes, times):.2f}",
            f"{exponent(sizes, memory):.2f}",
        )
    Console(width=WIDTH + 40).print(rows)


if __name__ == "__main__":
    main()
