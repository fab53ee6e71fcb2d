"""Forecast of `lgbench run` on this machine: runs, time and memory, from measured steps. Writes nothing and trains no run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from lgbench.execution.device import Execution, full_float32, keep_freed_memory, threads
from lgbench.execution.executor import located
from lgbench.execution.populations import named
from lgbench.execution.progress import ProgressDisplay, duration, evaluation_tokens, point_tokens, training_tokens
from lgbench.execution.scheduler import Scheduler
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan
from lgbench.training.cost import free_memory, readable, step_seconds


@dataclass(frozen=True)
class GroupForecast:
    """Remaining runs of a group of experiments that can train together."""

    title: str
    runs: int
    models: int
    """In a population, at most."""
    compile: bool
    memory: int
    """Bytes for training a population."""
    step: float
    """Seconds of a training step of a population, not compiled."""
    seconds: float
    """Of training and testing a population."""

    @property
    def populations(self) -> int:
        return -(-self.runs // self.models)

    def line(self) -> str:
        each = "" if self.populations == 1 else " each"
        compiled = "; the step would be compiled, which takes less" if self.compile else ""
        return (
            f"{self.title}: {_count(self.runs, 'run')} in {_count(self.populations, 'population')} of at most "
            f"{_count(self.models, 'model')}, {readable(self.memory)}{each}; {self.step * 1000:.3g} ms a step, as measured, "
            f"makes {duration(self.seconds)}{each} with tests{compiled}"
        )


@dataclass
class Forecast:
    """Forecast of all runs of a plan."""

    done: int
    begun: int
    """Runs of populations in training by other commands, or left with a checkpoint by a killed command."""
    workers: int
    free: int
    """Free bytes of memory on the device."""
    groups: list[GroupForecast] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """A sentence for each group whose training cannot make a step."""

    @classmethod
    def of(cls, plan: Plan, execution: Execution, folder: Path, display: ProgressDisplay) -> Forecast:
        """Runs a few training steps of each group, not compiled."""
        scheduler = Scheduler(plan, folder, execution, display, lambda group, error: None)
        left = sum(map(len, scheduler.groups))
        found = cls(len(plan.experiments) - left, scheduler.begun(), execution.workers, free_memory(execution.device))
        for group in scheduler.groups:
            try:
                found.groups.append(_of_group(scheduler, group))
            except Exception as error:  # a plugin's model may raise anything
                found.failed.append(f"{_title(group)} would fail: {located(error)}")
        return found

    @property
    def busy(self) -> int:
        """Workers with something to do."""
        return min(self.workers, sum(group.populations for group in self.groups))

    @property
    def seconds(self) -> float:
        """Seconds of all runs with evenly shared work, at least those of the longest population."""
        total = sum(group.populations * group.seconds for group in self.groups)
        return max(total / max(1, self.busy), max((group.seconds for group in self.groups), default=0.0))

    @property
    def memory(self) -> int:
        """Bytes of the largest populations that may train at the same time."""
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
                f"in all about {duration(self.seconds)} with {many}; training takes about {readable(self.memory)} of "
                f"{readable(self.free)} free memory"
            )


def _of_group(scheduler: Scheduler, group: list[Experiment]) -> GroupForecast:
    execution = scheduler.execution
    keep_freed_memory()
    one_thread = threads(1) if execution.device.type == "cpu" else nullcontext()
    with full_float32(), one_thread:
        stacking = scheduler.stacking_of(group)
        population = group[: stacking.models]
        step = step_seconds(population, execution.device)
    training = step * population[0].train.steps
    tested = sum(evaluation_tokens(each) + point_tokens(each) for each in population)
    testing = training * tested / sum(map(training_tokens, population))
    memory = stacking.models * stacking.each.memory
    return GroupForecast(_title(group), len(group), stacking.models, stacking.compile, memory, step, training + testing)


def _title(group: list[Experiment]) -> str:
    return named([experiment.record for experiment in group])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
