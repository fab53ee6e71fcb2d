"""Scheduler: from experiments to populations, in step with other commands on the same results folder; and a forecast."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from lgbench.errors import RunFailed, located
from lgbench.execution.device import Execution, full_float32, keep_freed_memory, threads
from lgbench.execution.progress import ProgressDisplay, evaluation_tokens, point_tokens, training_tokens
from lgbench.execution.work_queue import LockedPopulation, PlannedPopulation, WorkQueue, named, unfinished
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan
from lgbench.terminal import counted, duration, memory
from lgbench.training import cost
from lgbench.training.cost import free_memory, step_seconds


@dataclass(frozen=True)
class Stacking:
    """Stack size of a group, and whether its training step is compiled."""

    each: cost.StepCost
    """Cost of a step of one model."""
    models: int
    compile: bool
    limit: float = math.inf
    """Largest stack size to try after a larger stack ran out of memory."""


def grouped(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Groups of experiments with equal `population_key`, the condition for training together."""
    groups: dict[Hashable, list[Experiment]] = defaultdict(list)
    for experiment in experiments:
        groups[experiment.population_key].append(experiment)
    return list(groups.values())


class Scheduler:
    """Populations of a command, until all runs have files or were tried by this command."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        execution: Execution,
        display: ProgressDisplay,
        fail: Callable[[Sequence[Experiment], Exception], None],
    ) -> None:
        """`fail` is called with the experiments of a group and the error of the first training step."""
        self.execution, self.display, self.fail = execution, display, fail
        self.folder = folder
        self._queue = WorkQueue(folder, plan.experiments, execution.device)
        self.groups = grouped(unfinished(plan.experiments, folder))
        """Experiments without a run file at the start of the command."""
        self._left = [{experiment.run_id: experiment for experiment in group} for group in self.groups]
        """Untried experiments of each group, by run id. Other commands may have written some of the files since."""
        self._index = {group[0].population_key: index for index, group in enumerate(self.groups)}
        self._stacking: dict[int, Stacking] = {}
        # Includes finished runs, so that a resumed command decides about compilation as at first.
        self._sharing: dict[Hashable, list[list[Experiment]]] = defaultdict(list)
        for group in grouped(plan.every or plan.experiments):
            self._sharing[group[0].program_key].append(group)

    def __iter__(self) -> Iterator[LockedPopulation | None]:
        """Populations, each locked when requested; None while other commands train all remaining runs."""
        self._queue.clear()
        waiting = False
        while True:
            yield from self._pass()
            elsewhere = sum(self._count(index) for index in range(len(self.groups)))
            if not elsewhere:
                self._queue.clear()
                return
            if not waiting:
                waiting = True
                self.display.say(f"waiting for {elsewhere} runs that other processes are making")
            yield None

    def planned(self, tuning: bool = False) -> Iterator[PlannedPopulation]:
        """Populations of all remaining runs, for other machines. Raises RunFailed if a first training step fails."""
        for group in self.groups:
            try:
                stacking = self.stacking_of(group)
            except Exception as error:  # a plugin's model may raise anything
                raise RunFailed(f"{group[0].record.title} failed: {located(error)}") from error
            for start in range(0, len(group), stacking.models):
                members = group[start : start + stacking.models]
                yield PlannedPopulation.of(members, stacking.models, stacking.compile, tuning)

    def begun(self) -> int:
        """Number of unfinished runs in populations in training, or left by killed processes."""
        return len(self._queue.begun() & {experiment.run_id for group in self.groups for experiment in group})

    def halve(self, population: LockedPopulation) -> bool:
        """Halve the stack size of a group that ran out of memory. False for a single model."""
        models = population.planned.models
        if models == 1:
            return False
        index = self._index[population.experiments[0].population_key]
        self._stacking[index] = replace(self._stacking[index], models=-(-models // 2), limit=-(-models // 2))
        self._left[index] = {each.run_id: each for each in population.experiments} | self._left[index]
        return True

    def _pass(self) -> Iterator[LockedPopulation]:
        """Free populations. As many groups as workers take turns, so that each worker compiles the step of one group."""
        groups = list(range(len(self.groups)))
        while groups:
            together, groups = groups[: self.execution.workers], groups[self.execution.workers :]
            while together:
                for index in list(together):
                    if population := self._next(index):
                        yield population
                    else:
                        together.remove(index)

    def _next(self, index: int) -> LockedPopulation | None:
        """Next free population of a group; None if all are taken."""
        if index not in self._stacking and not self._decide(index):
            return None
        left, stacking = self._left[index], self._stacking[index]
        population = self._queue.take(left, stacking.models, stacking.compile, stacking.limit)
        for experiment in population.experiments if population else ():
            left.pop(experiment.run_id, None)
        return population

    def _decide(self, index: int) -> bool:
        """Choose the stacking of a group. False if no run is left, or if the models cannot be trained."""
        if not self._count(index):
            return False
        left = self._left[index]
        try:
            self._stacking[index] = self.stacking_of(list(left.values()))
        except Exception as error:  # a plugin's model may raise anything
            left.clear()
            self.fail(self.groups[index], error)
            return False
        return True

    def _count(self, index: int) -> int:
        """Number of untried runs of a group without a file."""
        left = unfinished(self._left[index].values(), self.folder)
        self._left[index] = {experiment.run_id: experiment for experiment in left}
        return len(left)

    def stacking_of(self, todo: list[Experiment]) -> Stacking:
        """Stacking for the remaining runs of a group. Raises any error of the first training step."""
        each = cost.step_cost(todo[0], self.execution.device)
        return Stacking(each, self._models(len(todo), each), self._compile(todo))

    def _models(self, left: int, each: cost.StepCost) -> int:
        """Stack size: as requested, else the number of models that fit into the CPU's cache; limited by free memory."""
        workers, device = self.execution.workers, self.execution.device
        share = -(-left // workers)
        wanted = min(self.execution.population or int(min(share, cost.stack_size(each, device))), left)
        fit = max(1, cost.models_that_fit(each, device) // workers)
        if fit < wanted:
            self.display.say(f"memory is free for {fit} of {wanted} models at once, so they are trained in several populations")
        populations = -(-left // min(wanted, fit))
        return -(-left // populations)  # equal sizes, since a compiled step pads a smaller stack, a waste of time

    def _compile(self, todo: list[Experiment]) -> bool:
        """Whether to compile: as requested, else if the longest training with the same programs has enough steps."""
        if self.execution.compile is not None:
            return self.execution.compile
        sharing = self._sharing[todo[0].program_key]
        longest = max((group[0] for group in sharing), key=lambda experiment: experiment.train.steps)
        return cost.compiling_pays(longest, self.execution.device)


@dataclass(frozen=True)
class GroupForecast:
    """Forecast of the remaining runs of one group."""

    title: str
    runs: int
    models: int
    """Largest number of models in a population."""
    compile: bool
    memory: int
    """Bytes of memory for the training of a population."""
    step: float
    """Seconds of an uncompiled training step of a population."""
    seconds: float
    """Seconds for training and testing a population."""

    @property
    def populations(self) -> int:
        return -(-self.runs // self.models)

    def line(self) -> str:
        each = "" if self.populations == 1 else " each"
        compiled = "; the step would be compiled, which takes less" if self.compile else ""
        return (
            f"{self.title}: {counted(self.runs, 'run')} in {counted(self.populations, 'population')} of at most "
            f"{counted(self.models, 'model')}, {memory(self.memory)}{each}; {self.step * 1000:.3g} ms a step, as measured, "
            f"makes {duration(self.seconds)}{each} with tests{compiled}"
        )


@dataclass
class Forecast:
    """Forecast of all runs of a plan."""

    done: int
    begun: int
    """Unfinished runs in populations in training, or left by a killed command."""
    workers: int
    free: int
    """Free bytes of memory on the device."""
    groups: list[GroupForecast] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """One sentence for each group that fails in its first training step."""

    @classmethod
    def of(cls, plan: Plan, execution: Execution, folder: Path, display: ProgressDisplay) -> Forecast:
        """Forecast from a few uncompiled training steps of each group."""
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
        """Number of workers with a population to train."""
        return min(self.workers, sum(group.populations for group in self.groups))

    @property
    def seconds(self) -> float:
        """Seconds of all runs with evenly shared work, at least the time of the longest population."""
        total = sum(group.populations * group.seconds for group in self.groups)
        return max(total / max(1, self.busy), max((group.seconds for group in self.groups), default=0.0))

    @property
    def memory(self) -> int:
        """Bytes of memory for the largest populations in training at the same time."""
        largest = sorted((group.memory for group in self.groups for _ in range(group.populations)), reverse=True)
        return sum(largest[: self.workers])

    def lines(self, kind: str = "run") -> Iterator[str]:
        """Lines for the user; `kind` is the noun for the runs, such as "tuning run"."""
        left = sum(group.runs for group in self.groups)
        begun = f", {self.begun} of them begun" if self.begun else ""
        yield f"{counted(self.done, kind)} done before; {counted(left, kind)} left{begun}"
        for group in self.groups:
            yield group.line()
        if self.groups:
            many = counted(self.busy, "worker")
            yield (
                f"in all about {duration(self.seconds)} with {many}; training takes about {memory(self.memory)} of "
                f"{memory(self.free)} free memory"
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
