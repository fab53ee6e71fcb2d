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
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from lgbench.errors import first_line, lacks_memory
from lgbench.execution.command import run
from lgbench.execution.device import environment
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import plan
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.options import RunOptions
from lgbench.training.cost import free_memory, models_that_fit, step_cost
from lgbench.training.data import stream
from lgbench.training.population import Population
from lgbench.training.train import train

CPU = torch.device("cpu")
TOLERANCE = 0.02
"""Allowed difference of TVD between two devices, or two ways to train, after a few steps: rounding grows with every step."""
LOSS_TOLERANCE = 0.01
"""Allowed difference of the last loss, in nats."""
MEMORY_FACTOR = 1.5
"""Allowed memory of a step, as a multiple of what was counted."""


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
    standard: Mapping[str, Any] | None = None
    """Changed settings of the protocol `standard`; None for the protocol as published."""
    tasks: int | None = None
    """Number of tasks that are compared; None for all."""


SMALL = Sizes(
    steps=6,
    populations=(1, 3),
    timed_steps=4,
    products=256,
    standard={"train.steps": 8, "train.lr": 0.002, "evaluate.contexts": 8},
    tasks=1,
)
"""Sizes for a test of the selftest itself."""

NORMS = ("pre-norm", "post-norm", "peri-norm", "peri-init-norm")
"""Norm schemes of every task. The first task has all schemes: with packs there are 86 tasks, and a CPU takes its time."""


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
        yield from (self.same_numbers, self.captured, self.memory, self.pace, self.bfloat16, self.standard)

    def experiments(self, task: str, entries: Sequence[str], seeds: Sequence[int] = (0,), **settings: Any) -> list[Experiment]:
        """Experiments under the protocol quick, with the steps of a comparison."""
        changes = {"train.steps": self.sizes.steps, "evaluate.contexts": 16, "evaluate.strings": 8} | settings.pop("set", {})
        options = RunOptions(task, entries, average=(), seeds=seeds, protocol="quick", set=changes, **settings)
        return list(plan(options, self.registry).experiments)

    def same_numbers(self) -> Proof:
        """TVD on the device against a CPU, for one task with every norm scheme, and for every task with four."""
        rows, worst = [], 0.0
        for place, task in enumerate(self.registry.tasks.names()[: self.sizes.tasks]):
            self.say(f"{task} on {self.device.type} and cpu")
            for experiment in self.experiments(task, NORMS if place else self.registry.norms.names()):
                apart = max(_differences(*(self._tested(experiment, device) for device in (CPU, self.device))))
                worst = max(worst, apart)
                rows.append(f"| {task} | {experiment.entry} | {apart:.2g} |")
        table = ["| task | entry | largest difference of TVD at any length |", "| :-- | :-- | --: |", *rows]
        title = "The numbers of a CPU, with every norm scheme on one task, and four on every task"
        return Proof(title, worst <= TOLERANCE, table)

    def _tested(self, experiment: Experiment, device: torch.device) -> dict[int, float]:
        """TVD by length of a model that was trained on a device."""
        trained = train([experiment], device)
        scores = evaluate(experiment, {"raw": trained.model("raw", 0)}, device)
        return {score.length: score.value for score in scores if score.metric == "tvd" and score.value is not None}

    def captured(self) -> Proof:
        """Captured and compiled steps against plain ones."""
        rows, holds = [], True
        for task in ("tomita-4", "set-complement")[: self.sizes.tasks]:
            (experiment,) = self.experiments(task, ["peri-norm"])
            plain = self._plain(experiment)
            for name, compile in (("captured", False), ("compiled and captured", True)):
                self.say(f"{task}, {name}")
                said: list[str] = []
                losses = train([experiment], self.device, compile=compile, models=1, say=said.append).curve.loss[:, 0]
                apart = (losses.cpu() - plain).abs().max().item()
                refused = [sentence for sentence in said if "cannot" in sentence]
                holds &= apart <= LOSS_TOLERANCE and not refused
                rows.append(f"| {task} | {name} | {apart:.2g} | {'; '.join(refused)} |")
        table = ["| task | step | largest difference of the loss, nats | |", "| :-- | :-- | --: | :-- |", *rows]
        return Proof("Captured steps against plain ones", holds, table)

    def _plain(self, experiment: Experiment) -> torch.Tensor:
        """Curve of the loss without capturing and compiling."""
        population = Population([experiment], self.device)
        with torch.no_grad():
            for step, batch in enumerate(stream([(experiment.task, experiment.seed)], experiment.train, self.device), 1):
                population.advance(*batch.tensors)
                population.mark(step)
        return population.curve[:, 0, 0].cpu()

    def memory(self) -> Proof:
        """Counted memory of a step against the measured peak."""
        (experiment,) = self.experiments("set-complement", ["peri-norm"], set={"train.batch": 256})
        counted = step_cost(experiment, self.device).memory
        lines = [f"Counted for one model: {counted / 2**20:.1f} MiB; models that fit: {self._fitting(experiment)}."]
        if self.device.type != "cuda":
            return Proof("Memory against the estimate", True, [*lines, "The peak is measured on a CUDA device alone."])
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        train([experiment], self.device)
        peak = torch.cuda.max_memory_allocated(self.device) - before
        lines.append(f"Measured: {peak / 2**20:.1f} MiB, {peak / counted:.2f} times as much.")
        return Proof("Memory against the estimate", peak <= MEMORY_FACTOR * counted, lines)

    def _fitting(self, experiment: Experiment) -> str:
        count = models_that_fit(step_cost(experiment, self.device), self.device)
        return f"{count:,} in {free_memory(self.device) / 2**30:.1f} GiB"

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
        # The first product is not timed: libraries set themselves up in it.
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
        return Proof("bfloat16 beside float32", abs(losses[1] - losses[0]) <= 5 * LOSS_TOLERANCE, table)

    def standard(self) -> Proof:
        """`lgbench.run` of one family under the protocol standard, with its tuning."""
        self.say("set-complement under the protocol standard, with its tuning runs")
        started = time.perf_counter()
        with TemporaryDirectory() as folder:
            rows = run(
                "set-complement",
                ["pre-norm", "post-norm"],
                seeds=range(5) if self.sizes.standard is None else range(2),
                protocol="standard",
                average=[],
                set=dict(self.sizes.standard or {}),
                device=self.device.type,
                results=Path(folder),
            ).to_pylist()
        seconds = time.perf_counter() - started
        tvd = [row for row in rows if row["metric"] == "tvd" and row["weights"] == "raw" and row["on_boards"]]
        last = max(row["step"] for row in tvd)
        found = {
            (entry, seed): mean(
                row["value"]
                for row in tvd
                if (row["entry"], row["seed"], row["step"], row["in_distribution"]) == (entry, seed, last, False)
            )
            for entry, seed in sorted({(row["entry"], row["seed"]) for row in tvd})
        }
        table = ["| entry | seed | OOD TVD |", "| :-- | --: | --: |"]
        table += [f"| {entry} | {seed} | {value:.4f} |" for (entry, seed), value in found.items()]
        said = f"{len(found)} runs, their tuning and tests took {seconds:.0f} s."
        return Proof("Set complement under standard", all(0 <= value <= 1 for value in found.values()), [said, "", *table])


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
