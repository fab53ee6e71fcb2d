"""Proof that a device trains and tests as a CPU does, with its pace: `lgbench selftest`.

Each part measures one thing and says whether it holds. The report is Markdown, to attach to an issue. Neither DuckDB nor a
network is needed. On a CPU in place of a GPU every part runs too, and shows that the parts work.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from lgbench.errors import first_line, lacks_memory
from lgbench.execution.device import environment
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.options import RunOptions
from lgbench.training.cost import step_cost
from lgbench.training.train import train

CPU = torch.device("cpu")
TOLERANCE = 0.02
"""Allowed difference of TVD between two devices, or two ways to train, after a few steps: rounding grows with every step."""
LOSS_TOLERANCE = 0.05
"""Allowed difference of the last loss in bfloat16, in nats."""


@dataclass(frozen=True)
class Sizes:
    """Amount of work of the parts."""

    steps: int = 40
    """Training steps for each comparison."""
    populations: Sequence[int] = (1, 4, 16, 64, 256, 1024)
    timed_steps: int = 60
    """Steps of each population; the second half is timed."""
    products: int = 8192
    """Rows of the square matrices whose product gives the peak of the device."""
    tasks: int | None = None
    """Number of tasks that are compared; None for all."""


SMALL = Sizes(steps=6, populations=(1, 3), timed_steps=4, products=256, tasks=1)
"""Sizes for a test of the selftest itself."""

NORMS = ("pre-norm", "post-norm", "peri-norm", "peri-init-norm")


@dataclass(frozen=True)
class Proof:
    """Result of one part of the selftest."""

    title: str
    holds: bool
    lines: Sequence[str]
    """Markdown: sentences, or the lines of a table."""


class Selftest:
    """Parts of a selftest on one device."""

    def __init__(self, device: torch.device, sizes: Sizes, say: Callable[[str], None]) -> None:
        self.device, self.sizes, self.say = device, sizes, say

    @cached_property
    def registry(self) -> Registry:
        return Registry.load()

    def parts(self) -> Iterator[Callable[[], Proof]]:
        yield from (self.same_numbers, self.pace, self.bfloat16)

    def experiments(self, task: str, entries: Sequence[str], seeds: Sequence[int] = (0,), **settings: Any) -> list[Experiment]:
        """Experiments under the protocol quick, with the steps of a comparison."""
        changes = {"train.steps": self.sizes.steps, "evaluate.contexts": 16, "evaluate.strings": 8} | settings.pop("set", {})
        options = RunOptions(task, entries, average=(), seeds=seeds, protocol="quick", set=changes, **settings)
        return list(plan(options, self.registry).experiments)

    def same_numbers(self) -> Proof:
        """TVD on the device against a CPU, for every task with every norm scheme."""
        rows, worst = [], 0.0
        for task in self.registry.tasks.names()[: self.sizes.tasks]:
            self.say(f"{task} on {self.device.type} and cpu")
            for experiment in self.experiments(task, NORMS):
                apart = max(_differences(*(self._tested(experiment, device) for device in (CPU, self.device))))
                worst = max(worst, apart)
                rows.append(f"| {task} | {experiment.entry} | {apart:.2g} |")
        table = ["| task | entry | largest difference of TVD at any length |", "| :-- | :-- | --: |", *rows]
        return Proof("The numbers of a CPU, on every task with every norm", worst <= TOLERANCE, table)

    def _tested(self, experiment: Experiment, device: torch.device) -> dict[int, float]:
        """TVD by length of a model that was trained on a device."""
        trained = train([experiment], device)
        scores = evaluate(experiment, {"raw": trained.model("raw", 0)}, device)
        return {score.length: score.value for score in scores if score.metric == "tvd" and score.value is not None}

    def pace(self) -> Proof:
        """Model-steps a second of populations, and their share of what the device reaches in large products."""
        peaks = {precision: self._peak(getattr(torch, precision)) for precision in ("float32", "bfloat16")}
        rows, holds = [], True
        for task in ("dyck-2-5", "set-complement")[: self.sizes.tasks]:
            (one,) = self.experiments(task, ["pre-norm"])
            flops = _flops(one)
            for models in self.sizes.populations:
                self.say(f"{task}, a population of {models:,}")
                members = self.experiments(task, ["pre-norm"], range(models), set={"train.steps": self.sizes.timed_steps})
                try:
                    rate = self._rate(members)
                except Exception as error:  # whatever a device runs out of
                    holds &= lacks_memory(error)
                    rows.append(f"| {task} | {models:,} | {first_line(error)} | |")
                    break
                share = rate * flops / peaks["float32"]
                rows.append(f"| {task} | {models:,} | {rate:,.0f} | {share:.1%} |")
        said = ", ".join(f"{precision} {peak / 1e12:.3g} TFLOP/s" for precision, peak in peaks.items())
        table = ["| task | models | model-steps a second | share of the float32 peak |", "| :-- | --: | --: | --: |", *rows]
        return Proof("Pace of populations", holds, [f"Peak in products of large matrices: {said}.", "", *table])

    def _rate(self, members: Sequence[Experiment]) -> float:
        """Model-steps a second, over the second half of a training."""
        times: list[float] = []

        def tick(step: int, loss: Callable[[], float]) -> None:
            if step in (self.sizes.timed_steps // 2, self.sizes.timed_steps):
                loss()  # waits for a GPU
                times.append(time.perf_counter())

        train(members, self.device, tick)
        return len(members) * (self.sizes.timed_steps - self.sizes.timed_steps // 2) / (times[1] - times[0])

    def _peak(self, dtype: torch.dtype, rounds: int = 10) -> float:
        """Floating-point operations a second in products of large matrices."""
        size = self.sizes.products
        square = torch.randn(size, size, device=self.device).to(dtype)
        square @ square
        self._wait()
        started = time.perf_counter()
        for _ in range(rounds):
            square @ square
        self._wait()
        return rounds * 2 * size**3 / (time.perf_counter() - started)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def bfloat16(self) -> Proof:
        """Loss and pace in bfloat16 beside float32."""
        rows, losses = [], []
        for precision in ("float32", "bfloat16"):
            members = self.experiments("set-complement", ["pre-norm"], range(8), precision=precision)
            self.say(f"set-complement in {precision}")
            started = time.perf_counter()
            losses.append(train(members, self.device).curve.loss[-1].mean().item())
            rows.append(f"| {precision} | {losses[-1]:.3f} | {time.perf_counter() - started:.1f} |")
        table = ["| precision | last loss, nats, 8 seeds | seconds |", "| :-- | --: | --: |", *rows]
        return Proof("bfloat16 beside float32", abs(losses[1] - losses[0]) <= LOSS_TOLERANCE, table)


def _differences(first: Mapping[int, float], second: Mapping[int, float]) -> Iterator[float]:
    yield 0.0 if first.keys() == second.keys() else 1.0
    yield from (abs(first[length] - second[length]) for length in first.keys() & second.keys())


def _flops(experiment: Experiment) -> int:
    """Floating-point operations of products in a training step of one model."""
    with FlopCounterMode(display=False) as counter:
        step_cost(experiment, CPU)
    return int(counter.get_total_flops())


def selftest(device: torch.device, sizes: Sizes, say: Callable[[str], None]) -> tuple[str, bool]:
    """Markdown report, and whether every part holds. A part that fails is told with its error, and the others go on."""
    own = Selftest(device, sizes, say)
    about = environment(device)
    lines = [f"# lgbench selftest on {about['device']}", "", *(f"- {name}: {value}" for name, value in about.items()), ""]
    holds = True
    for part in own.parts():
        started = time.perf_counter()
        try:
            found = part()
        except Exception:  # a device may fail in any way, and the report must say how
            found = Proof((part.__doc__ or part.__name__).strip(), False, ["```", traceback.format_exc().strip(), "```"])
        holds &= found.holds
        verdict = "holds" if found.holds else "FAILS"
        lines += [f"## {found.title}: {verdict}", "", f"{time.perf_counter() - started:.0f} s", "", *found.lines, ""]
        say(f"{found.title}: {verdict}")
    return "\n".join(lines), holds
