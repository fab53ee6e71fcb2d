"""Scheduler: from experiments to populations, shared with other commands that use the same results folder."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lgbench.errors import RunFailed
from lgbench.execution.device import Execution
from lgbench.execution.executor import located
from lgbench.execution.populations import PlannedPopulation
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.work_queue import LockedPopulation, WorkQueue, unfinished
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan
from lgbench.results import run_files
from lgbench.training import cost


@dataclass(frozen=True)
class Stacking:
    """Size of the stacks in which a group is trained, and whether the training step is compiled."""

    each: cost.StepCost
    """Cost of a step of one model."""
    models: int
    compile: bool
    limit: float = math.inf
    """Size of the largest stack for which memory suffices, once a larger one ran out of it."""


def path_of(experiment: Experiment, folder: Path) -> Path:
    """Where an experiment's run file is."""
    return run_files.path_for(folder, experiment.record)


def grouped(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Groups of experiments with one `population_key`, which can train together."""
    groups: dict[Hashable, list[Experiment]] = defaultdict(list)
    for experiment in experiments:
        groups[experiment.population_key].append(experiment)
    return list(groups.values())


class Scheduler:
    """Populations of a command, until all its runs have files or were tried here."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        execution: Execution,
        display: ProgressDisplay,
        fail: Callable[[Sequence[Experiment], Exception], None],
    ) -> None:
        """`fail` is called with experiments whose first training step raises an error."""
        self.execution, self.display, self.fail = execution, display, fail
        self.folder = folder
        self._queue = WorkQueue(folder, plan.experiments, execution.device)
        self.groups = grouped(unfinished(plan.experiments, folder))
        """Runs without a file at the beginning."""
        self._left = [{experiment.run_id: experiment for experiment in group} for group in self.groups]
        """Runs of each group that were not tried here. Other commands may have written some by now."""
        self._index = {group[0].population_key: index for index, group in enumerate(self.groups)}
        self._stacking: dict[int, Stacking] = {}
        # Finished runs count too, so that a command that goes on decides about compilation as it did at first.
        self._sharing: dict[Hashable, list[list[Experiment]]] = defaultdict(list)
        for group in grouped(plan.every or plan.experiments):
            self._sharing[group[0].program_key].append(group)

    def __iter__(self) -> Iterator[LockedPopulation | None]:
        """Each population, locked when it is asked for; None where other commands have all that is left."""
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
        """Populations of all runs that are left, for other machines. Raises RunFailed for a model whose step cannot be run."""
        for group in self.groups:
            try:
                stacking = self.stacking_of(group)
            except Exception as error:  # a plugin's model may raise anything
                raise RunFailed(f"{group[0].record.title} failed: {located(error)}") from error
            for start in range(0, len(group), stacking.models):
                members = group[start : start + stacking.models]
                yield PlannedPopulation.of(members, stacking.models, stacking.compile, tuning)

    def begun(self) -> int:
        """Number of runs without a file in populations that are trained now or were left by killed processes."""
        return len(self._queue.begun() & {experiment.run_id for group in self.groups for experiment in group})

    def halve(self, population: LockedPopulation) -> bool:
        """Train a group in stacks half as large as the one that ran out of memory. False if that was a single model."""
        models = population.planned.models
        if models == 1:
            return False
        index = self._index[population.experiments[0].population_key]
        self._stacking[index] = replace(self._stacking[index], models=-(-models // 2), limit=-(-models // 2))
        self._left[index] = {each.run_id: each for each in population.experiments} | self._left[index]
        return True

    def _pass(self) -> Iterator[LockedPopulation]:
        """Populations that are free now. As many groups as workers take turns, since each worker compiles a group's step."""
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
        """Next population of a group; None if there is none that is free now."""
        if index not in self._stacking and not self._decide(index):
            return None
        left, stacking = self._left[index], self._stacking[index]
        population = self._queue.take(left, stacking.models, stacking.compile, stacking.limit)
        for experiment in population.experiments if population else ():
            left.pop(experiment.run_id, None)
        return population

    def _decide(self, index: int) -> bool:
        """Whether a group has runs left and its models can be trained. Decides how."""
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
        """Number of a group's runs that were not tried here and have no file by now."""
        left = unfinished(self._left[index].values(), self.folder)
        self._left[index] = {experiment.run_id: experiment for experiment in left}
        return len(left)

    def stacking_of(self, todo: list[Experiment]) -> Stacking:
        """Stacking of these runs of a group. Raises what their first training step raises."""
        each = cost.step_cost(todo[0], self.execution.device)
        return Stacking(each, self._models(len(todo), each), self._compile(todo))

    def _models(self, left: int, each: cost.StepCost) -> int:
        """Size of the stacks: as asked for, else as many models as fit into a CPU's cache; at most what fits into memory."""
        workers, device = self.execution.workers, self.execution.device
        share = -(-left // workers)
        wanted = min(self.execution.population or int(min(share, cost.stack_size(each, device))), left)
        fit = max(1, cost.models_that_fit(each, device) // workers)
        if fit < wanted:
            self.display.say(f"memory is free for {fit} of {wanted} models at once, so they are trained in several populations")
        populations = -(-left // min(wanted, fit))
        return -(-left // populations)  # stacks of equal size, since a compiled step fills up a smaller one in vain

    def _compile(self, todo: list[Experiment]) -> bool:
        """Whether to compile: as asked for, or where the longest training with the same programs has enough steps."""
        if self.execution.compile is not None:
            return self.execution.compile
        sharing = self._sharing[todo[0].program_key]
        longest = max((group[0] for group in sharing), key=lambda experiment: experiment.train.steps)
        return cost.compiling_pays(longest, self.execution.device)
