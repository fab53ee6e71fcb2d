"""The scheduler: from experiments to populations, shared with other processes that use the same results folder."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lgbench.execution import provenance
from lgbench.execution.claim import Claim
from lgbench.execution.device import Execution
from lgbench.execution.lease import Held
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.work_queue import WorkQueue, by_id, unfinished
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan
from lgbench.results import run_files
from lgbench.training import cost

Group = list[Experiment]
"""Experiments that can train together."""


@dataclass(frozen=True)
class Assignment:
    """A population to train now, for whoever trains it."""

    experiments: Sequence[Experiment]
    held: Held
    """The folder of its checkpoint and of files that are being written."""
    models: int
    """The size of the stack, at least that of the population: a compiled step takes no other."""
    compile: bool


@dataclass(frozen=True)
class Work:
    """A population to train now, and the claim on it."""

    claim: Claim
    models: int
    compile: bool

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.claim.experiments, self.claim.lease, self.models, self.compile)


@dataclass(frozen=True)
class Stacks:
    """Cost of a model of a group, number of models trained together, and whether the step is compiled."""

    each: cost.StepCost
    models: int
    compile: bool
    limit: float = math.inf
    """The size of the largest stack for which memory suffices, once a larger one ran out of it."""


def path_of(experiment: Experiment, folder: Path) -> Path:
    """Where an experiment's run file is."""
    return run_files.path_for(folder, experiment.record)


def grouped(experiments: Sequence[Experiment]) -> list[Group]:
    """Groups of experiments; the members of a group can train together."""
    groups: dict[Hashable, Group] = defaultdict(list)
    for experiment in experiments:
        groups[experiment.population_key].append(experiment)
    return list(groups.values())


class Scheduler:
    """The populations that this command is to train, until all runs have files or were tried here."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        execution: Execution,
        display: ProgressDisplay,
        fail: Callable[[Sequence[Experiment], Exception], None],
    ) -> None:
        """Calls `fail` with experiments whose first training step raises an error."""
        self.execution, self.display, self.fail = execution, display, fail
        self.folder = folder
        self._queue = WorkQueue(folder, plan.experiments)
        self.groups = grouped(unfinished(plan.experiments, folder))
        """Of the runs that had no file at the beginning."""
        self._left = [by_id(group) for group in self.groups]
        """Of each group the runs that were not tried here. Some may have a file by now."""
        self._index = {group[0].population_key: index for index, group in enumerate(self.groups)}
        self._given: list[tuple[int, Claim]] = []
        """With the index of the group; claims that were not ended when this was last asked for."""
        self._sharing: dict[Hashable, list[Group]] = defaultdict(list)
        """The groups of the whole command, finished or not, that share compiled programs: so both stages decide alike."""
        for group in grouped(plan.every or plan.experiments):
            self._sharing[group[0].program_key].append(group)
        self._stacks: dict[int, Stacks] = {}

    def __iter__(self) -> Iterator[Work | None]:
        """Yield each population when it is asked for; None where other commands have all that is left."""
        self._queue.clear()
        waiting = False
        while True:
            yield from self._pass()
            elsewhere = sum(self._count(index) for index in range(len(self.groups)))
            if not elsewhere:
                self._queue.clear()
            if not elsewhere:
                return
            if not waiting:
                waiting = True
                self.display.say(f"waiting for {elsewhere} runs that other processes are making")
            yield None

    def begun(self) -> int:
        """How many runs without a file belong to a population that somebody trains, or that a killed process left."""
        return len(self._queue.begun() & {experiment.run_id for group in self.groups for experiment in group})

    def halve(self, work: Work) -> bool:
        """Train the group of a population that ran out of memory in stacks half as large. False where it was of one model."""
        if work.models == 1:
            return False
        index = self._index[work.claim.experiments[0].population_key]
        smaller = -(-work.models // 2)
        self._stacks[index] = replace(self._stacks[index], models=smaller, limit=smaller)
        self._put_back(index, work.claim)
        return True

    def _pass(self) -> Iterator[Work]:
        """Every population that is free now. As many groups as there are workers take turns: each worker compiles its own."""
        groups = list(range(len(self.groups)))
        while groups:
            together, groups = groups[: self.execution.workers], groups[self.execution.workers :]
            while together:
                for index in list(together):
                    if work := self._next(index):
                        yield work
                    else:
                        together.remove(index)

    def _next(self, index: int) -> Work | None:
        """The next population of a group; None if none of it is free now."""
        self._look_for_lost()
        if index not in self._stacks and not self._count(index):
            return None
        left = self._left[index]
        if index not in self._stacks:
            try:
                self._stacks[index] = self.stacks_of(list(left.values()))
            except Exception as error:  # a plugin's model may raise anything
                left.clear()
                self.fail(self.groups[index], error)
                return None
        if not left:
            return None
        stacks = self._stacks[index]
        made_by = partial(provenance.made_by, device=self.execution.device)
        claim = self._queue.take(left, stacks.models, made_by, stacks.limit)
        if not claim:
            return None
        for experiment in claim.experiments:
            left.pop(experiment.run_id, None)
        self._given.append((index, claim))
        return Work(claim, claim.models, stacks.compile)

    def _count(self, index: int) -> int:
        """How many runs of a group are left that were not tried here, and that have no file by now either."""
        self._look_for_lost()
        if left := self._left[index]:
            self._left[index] = by_id(unfinished(list(left.values()), self.folder))
        return len(self._left[index])

    def _look_for_lost(self) -> None:
        """Put back what other commands are making, since they took it over from this one."""
        for index, claim in self._given:
            if claim.lease.lost:
                self._put_back(index, claim)
        self._given = [own for own in self._given if not (own[1].lease.lost or own[1].lease.ended)]

    def _put_back(self, index: int, claim: Claim) -> None:
        """Make the runs of a population the first that are left of their group."""
        for experiment in reversed(claim.experiments):
            self._left[index][experiment.run_id] = experiment
            self._left[index].move_to_end(experiment.run_id, last=False)

    def stacks_of(self, todo: Group) -> Stacks:
        """Stacks in which this command trains these runs of a group. Raises any error of a first training step."""
        each = cost.step_cost(todo[0], self.execution.device)
        return Stacks(each, self._models(len(todo), each), self._compile(todo))

    def _models(self, left: int, each: cost.StepCost) -> int:
        """How many to train together: as asked for, or as many as fit into a CPU's cache; not more than fit into memory."""
        workers, device = self.execution.workers, self.execution.device
        share = -(-left // workers)
        wanted = min(self.execution.population or int(min(share, cost.stack_size(each, device))), left)
        fit = max(1, cost.models_that_fit(each, device) // workers)
        if fit < wanted:
            self.display.say(f"memory is free for {fit} of {wanted} models at once, so they are trained in several populations")
        populations = -(-left // min(wanted, fit))
        return -(-left // populations)  # equal populations fill no stack in vain

    def _compile(self, todo: Group) -> bool:
        """Whether to compile: as asked for, or where the longest training with the same programs has enough steps."""
        if self.execution.compile is not None:
            return self.execution.compile
        sharing = self._sharing[todo[0].program_key]
        longest = max((group[0] for group in sharing), key=lambda experiment: experiment.train.steps)
        return cost.compiling_pays(longest, self.execution.device)
