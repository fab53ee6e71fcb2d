"""A forecast of `lgbench run` on this machine: its runs, their time and memory. Nothing is written, and no run is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from lgbench.execution.device import Execution, full_float32, keep_freed_memory, threads
from lgbench.execution.executor import located
from lgbench.execution.populations import named
from lgbench.execution.progress import ProgressDisplay, duration, evaluation_tokens, point_tokens, training_tokens
from lgbench.execution.scheduler import Group, Scheduler
from lgbench.experiment.plan import Plan
from lgbench.training import cost
from lgbench.training.pace import Pace, measured


@dataclass(frozen=True)
class GroupForecast:
    """The runs of a group that are left: experiments that can train together."""

    title: str
    runs: int
    models: int
    """In a population, at most."""
    compile: bool
    memory: int
    """Bytes that training a population takes."""
    pace: Pace
    seconds: float
    """Of training and testing a population."""

    @property
    def populations(self) -> int:
        return -(-self.runs // self.models)

    def line(self) -> str:
        how = "in 1 population" if self.populations == 1 else f"in {self.populations} populations"
        steps = "1 step" if self.pace.steps == 1 else f"{self.pace.steps} steps"
        each = "" if self.populations == 1 else " each"
        compiled = "; the step would be compiled, which takes less" if self.compile else ""
        return (
            f"{self.title}: {_runs(self.runs)} {how} of at most {_count(self.models, 'model')}, {_bytes(self.memory)}{each}; "
            f"{self.pace.seconds * 1000:.3g} ms a step, measured over {steps}, makes {duration(self.seconds)}{each} "
            f"with tests{compiled}"
        )


@dataclass
class Forecast:
    """Of all runs of a plan."""

    done: int
    begun: int
    """Runs of populations that other commands train now, or that a killed one left with a checkpoint."""
    workers: int
    free: int
    """Bytes of memory that are free on the device."""
    groups: list[GroupForecast] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """A sentence for each group whose training cannot make a step."""

    @classmethod
    def of(cls, plan: Plan, execution: Execution, folder: Path, display: ProgressDisplay) -> Forecast:
        """Runs a few training steps of each group, not compiled, for at most a few seconds."""
        scheduler = Scheduler(plan, folder, execution, display, lambda group, error: None)
        left = sum(map(len, scheduler.groups))
        found = cls(len(plan.experiments) - left, scheduler.begun(), execution.workers, cost.free_memory(execution.device))
        for group in scheduler.groups:
            try:
                found.groups.append(_of_group(scheduler, group))
            except Exception as error:  # a plugin's model may raise anything
                found.failed.append(f"{_title(group)} would fail: {located(error)}")
        return found

    @property
    def busy(self) -> int:
        """Workers that have something to do."""
        return min(self.workers, sum(group.populations for group in self.groups))

    @property
    def seconds(self) -> float:
        """Of everything, when workers share it evenly; at least those of the longest population."""
        total = sum(group.populations * group.seconds for group in self.groups)
        return max(total / max(1, self.busy), max((group.seconds for group in self.groups), default=0.0))

    @property
    def memory(self) -> int:
        """Bytes that the largest populations take that may train at the same time."""
        largest = sorted((group.memory for group in self.groups for _ in range(group.populations)), reverse=True)
        return sum(largest[: self.workers])

    def lines(self, kind: str = "run") -> Iterator[str]:
        """Text for the user, about runs of a kind."""
        left = sum(group.runs for group in self.groups)
        begun = f", {self.begun} of them begun" if self.begun else ""
        yield f"{_count(self.done, kind)} done before; {_count(left, kind)} left{begun}"
        for group in self.groups:
            yield group.line()
        if self.groups:
            many = _count(self.busy, "worker")
            yield (
                f"in all about {duration(self.seconds)} with {many}; training takes about {_bytes(self.memory)} of "
                f"{_bytes(self.free)} free memory"
            )


def _of_group(scheduler: Scheduler, group: Group) -> GroupForecast:
    execution = scheduler.execution
    stacks = scheduler.stacks_of(group)
    population = group[: stacks.models]
    keep_freed_memory()
    one_thread = threads(1) if execution.device.type == "cpu" else nullcontext()
    with full_float32(), one_thread:
        pace = measured(population, execution.device)
    training = pace.seconds * population[0].train.steps
    tested = sum(evaluation_tokens(each) + point_tokens(each) for each in population)
    testing = training * tested / sum(map(training_tokens, population))
    memory = stacks.models * (stacks.each.peak + stacks.each.kept)
    return GroupForecast(_title(group), len(group), stacks.models, stacks.compile, memory, pace, training + testing)


def _title(group: Group) -> str:
    return named([experiment.record for experiment in group])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _runs(number: int) -> str:
    return _count(number, "run")


def _bytes(number: int) -> str:
    """In MB, or in GB where that is more than one.

    >>> _bytes(2_340_000_000), _bytes(12_300_000)
    ('2.3 GB', '13 MB')
    """
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{math.ceil(number / 1e6)} MB"
