"""Scheduler: from experiments to populations, in step with other commands on the same results folder; and a forecast."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lgbench.contracts import Pool, Submitted
from lgbench.errors import RunFailed, WorkerKilled, first_line, lacks_memory, located
from lgbench.execution.device import as_in_runs
from lgbench.execution.progress import ProgressDisplay, eval_step_tokens, evaluation_tokens, training_tokens
from lgbench.execution.work_queue import LockedPopulation, WorkQueue, named, path_of, title_of, unfinished
from lgbench.execution.workers import LOOK_SECONDS, Job, Outcome, Setup
from lgbench.experiment.experiment import Experiment
from lgbench.terminal import counted, duration, memory
from lgbench.training import cost
from lgbench.training.cost import free_memory, step_seconds

WAIT_SECONDS = 1.0
"""Time between two checks of the locks of other commands while no population is free."""


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


@dataclass(eq=False)
class RunGroup:
    """Experiments that can train together, without a run file at the start of the command."""

    experiments: list[Experiment]
    left: dict[str, Experiment]
    """Untried experiments, by run id. Other commands may have written some of the files since."""
    stacking: Stacking | None = None
    """None before the first training step."""


@dataclass(frozen=True)
class PlanOutcome:
    """Outcome of a command: run files written by the command, run files found at its end, and failures."""

    written: list[Path]
    found: list[Path]
    failed: list[RunFailed]


class Scheduler:
    """Populations of experiments, trained until all runs have files or were tried by this command."""

    def __init__(
        self, experiments: Sequence[Experiment], setup: Setup, display: ProgressDisplay, every: Sequence[Experiment] = ()
    ) -> None:
        """`every` are all experiments of the command, if `experiments` is a single stage of it."""
        self.experiments, self.setup, self.display = experiments, setup, display
        self.folder, self.execution = setup.results, setup.execution
        self._queue = WorkQueue(self.folder, experiments, self.execution.device)
        left = grouped(unfinished(experiments, self.folder))
        self.groups = [RunGroup(group, {experiment.run_id: experiment for experiment in group}) for group in left]
        # Includes finished runs, so that a resumed command decides about compilation as at first.
        self._longest: dict[Hashable, Experiment] = {}
        for group in grouped(every or experiments):
            first = self._longest.setdefault(group[0].program_key, group[0])
            if group[0].train.steps > first.train.steps:
                self._longest[first.program_key] = group[0]
        self._written: list[Path] = []
        self._failed: list[RunFailed] = []
        self._not_made: set[str] = set()
        """Names of the files of failed runs."""

    def run(self, pool: Pool, later: Sequence[Experiment] = ()) -> PlanOutcome:
        """Train and test all experiments without a run file. A failed population does not stop the others.

        Other commands may run the same experiments at the same time. Returns when each run has a file or failed in this
        command. The display adds the experiments in `later` to the time left.
        """
        running: list[tuple[LockedPopulation, Submitted]] = []
        with self.display.all([*(each for group in self.groups for each in group.experiments), *later], pool.workers):
            try:
                self._run(pool, running)
            finally:
                for locked, submitted in running:
                    with suppress(Exception):  # the engine may be gone
                        submitted.cancel()
                    locked.release(KeyboardInterrupt())  # keeps begun populations
        tried = {path.name for path in self._written} | self._not_made
        paths = (path_of(experiment, self.folder) for experiment in self.experiments)
        return PlanOutcome(self._written, [path for path in paths if path.name not in tried], self._failed)

    def _run(self, pool: Pool, running: list[tuple[LockedPopulation, Submitted]]) -> None:
        """Keep as many populations in training as the pool has workers, until none is left."""
        populations: Iterator[LockedPopulation | None] | None = self._populations()
        look_again = 0.0
        while populations or running:
            while populations and len(running) < pool.workers and time.monotonic() >= look_again:
                match next(populations, _END):
                    case LockedPopulation() as locked:
                        running.append((locked, self._submitted(locked, pool)))
                    case None:
                        look_again = time.monotonic() + WAIT_SECONDS
                    case _:
                        populations = None
            ended = [each for each in running if each[1].done()]
            for each in ended:
                self._end(*each)
                running.remove(each)
                populations = populations or self._populations()  # a population that lacked memory is tried again
            if not ended and (populations or running):
                time.sleep(LOOK_SECONDS)

    def _submitted(self, locked: LockedPopulation, pool: Pool) -> Submitted:
        """Population on a pool. If the engine raises an error, the population is released."""
        try:
            # Resolved, because the engine may work in another folder.
            return pool.submit(Job(self.setup, locked.planned, locked.folder.resolve()))
        except BaseException as error:  # an engine may raise anything, and an interrupt must release it, too; it goes on
            locked.release(error)
            raise

    def _end(self, locked: LockedPopulation, submitted: Submitted) -> None:
        """Release a population after its end, with its files in the results folder."""
        outcome = _outcome(submitted)
        for sentence in outcome.said:
            self.display.say(sentence)
        written, error = [*outcome.written], outcome.error
        try:
            written += locked.filed(outcome.files, self.display.say)
        except Exception as raised:  # the disk may be full
            error = raised
        with suppress(OSError):  # the disk may be gone, and the run files are written
            locked.release(error)
        self._written += written
        planned = locked.planned
        if error and lacks_memory(error) and self._halve(locked):
            half = -(-planned.models // 2)
            self.display.say(f"{planned.title} needed more memory than is free; trained again, at most {half} at once")
        elif error:
            self._fail(locked.experiments, error)
        elif outcome.files:
            self.display.say(f"{planned.title}: done, {len(self._written)} of {counted(len(self.experiments), 'run')} written")

    def _fail(self, population: Sequence[Experiment], error: Exception) -> None:
        failure = RunFailed(f"{title_of([each.record for each in population])} failed: {located(error)}")
        failure.__cause__ = error
        self._failed.append(failure)
        self._not_made |= {path_of(each, self.folder).name for each in unfinished(population, self.folder)}

    def _populations(self) -> Iterator[LockedPopulation | None]:
        """Populations, each locked when requested; None while other commands train all remaining runs.

        Some of them may become free, so the next element is requested after WAIT_SECONDS.
        """
        self._queue.clear()
        waiting = False
        while True:
            yield from self._pass()
            elsewhere = sum(map(self._count, self.groups))
            if not elsewhere:
                self._queue.clear()
                return
            if not waiting:
                waiting = True
                self.display.say(f"waiting for {counted(elsewhere, 'run')} that other processes are making")
            yield None

    def begun(self) -> int:
        """Number of unfinished runs in populations in training, or left by killed processes."""
        begun = self._queue.begun()
        return sum(run_id in begun for group in self.groups for run_id in group.left)

    def _halve(self, population: LockedPopulation) -> bool:
        """Halve the stack size of a group that ran out of memory. False for a single model."""
        models = population.planned.models
        if models == 1:
            return False
        key = population.experiments[0].population_key
        group = next(each for each in self.groups if each.experiments[0].population_key == key)
        assert group.stacking
        half = -(-models // 2)
        group.stacking = replace(group.stacking, models=min(half, group.stacking.models), limit=half)
        group.left = {each.run_id: each for each in population.experiments} | group.left
        return True

    def _pass(self) -> Iterator[LockedPopulation]:
        """Free populations. As many groups as workers take turns, so that each worker compiles the step of one group."""
        groups = self.groups
        while groups:
            together, groups = groups[: self.execution.workers], groups[self.execution.workers :]
            while together:
                for group in list(together):
                    if population := self._next(group):
                        yield population
                    else:
                        together.remove(group)

    def _next(self, group: RunGroup) -> LockedPopulation | None:
        """Next free population of a group; None if all are taken, or if the models cannot be trained."""
        if not group.stacking:
            if not self._count(group):
                return None
            try:
                group.stacking = self.stacking_of([*group.left.values()])
            except Exception as error:  # a plugin's model may raise anything
                group.left.clear()
                self._fail(group.experiments, error)
                return None
        models, compile, limit = group.stacking.models, group.stacking.compile, group.stacking.limit
        population = self._queue.take(group.left, models, compile, limit)
        for experiment in population.experiments if population else ():
            group.left.pop(experiment.run_id, None)
        return population

    def _count(self, group: RunGroup) -> int:
        """Number of untried runs of a group without a file."""
        group.left = {experiment.run_id: experiment for experiment in unfinished(group.left.values(), self.folder)}
        return len(group.left)

    def stacking_of(self, todo: list[Experiment]) -> Stacking:
        """Stacking for the remaining runs of a group. Raises any error of the first training step."""
        each = cost.step_cost(todo[0], self.execution.device)
        compiled = self._compile(todo)
        alone = cost.trains_alone(todo[0], self.execution.device, compiled)
        return Stacking(each, 1 if alone else self._models(len(todo), each, compiled), compiled)

    def _models(self, left: int, each: cost.StepCost, compiled: bool) -> int:
        """Stack size: as requested, else the number of models that train fastest; limited by free memory."""
        workers, device = self.execution.workers, self.execution.device
        share = -(-left // workers)
        wanted = min(self.execution.population or int(min(share, cost.stack_size(each, device, compiled))), left)
        fit = max(1, cost.models_that_fit(each, device) // workers)
        if fit < wanted:
            self.display.say(f"memory is free for {fit} of {wanted} models at once, so they are trained in several populations")
        populations = -(-left // min(wanted, fit))
        return -(-left // populations)  # equal sizes, since a compiled step pads a smaller stack, a waste of time

    def _compile(self, todo: list[Experiment]) -> bool:
        """Whether to compile: as requested, else if the longest training with the same programs has enough steps."""
        if self.execution.compile is not None:
            return self.execution.compile
        return cost.compiling_pays(self._longest[todo[0].program_key], self.execution.device)


_END = object()  # None is an element of its own: try again later


def _outcome(submitted: Submitted) -> Outcome:
    """Outcome of an ended job. A lost job counts as a lack of memory, the most frequent reason."""
    try:
        outcome: Outcome = submitted.result()
    except Exception as error:  # each engine has exceptions of its own
        return Outcome(WorkerKilled(f"the job was lost: {first_line(error)}"))
    return outcome


@dataclass(frozen=True)
class GroupForecast:
    """Forecast of the remaining runs of one group."""

    title: str
    runs: int
    stacking: Stacking
    step: float
    """Seconds of an uncompiled training step of a population."""
    seconds: float
    """Seconds for training and testing a population."""

    @property
    def populations(self) -> int:
        return -(-self.runs // self.stacking.models)

    @property
    def memory(self) -> int:
        """Bytes of memory for the training of a population."""
        return self.stacking.models * self.stacking.each.memory

    def line(self) -> str:
        each = "" if self.populations == 1 else " each"
        compiled = "; the step would be compiled, which takes less" if self.stacking.compile else ""
        return (
            f"{self.title}: {counted(self.runs, 'run')} in {counted(self.populations, 'population')} of at most "
            f"{counted(self.stacking.models, 'model')}, {memory(self.memory)}{each}; {self.step * 1000:.3g} ms a step, as "
            f"measured, makes {duration(self.seconds)}{each} with tests{compiled}"
        )


@dataclass(frozen=True)
class Forecast:
    """Forecast of all runs of a scheduler."""

    scheduler: Scheduler
    groups: Sequence[GroupForecast]
    failed: Sequence[str] = ()
    """One sentence for each group that fails in its first training step."""

    @classmethod
    def of(cls, scheduler: Scheduler) -> Forecast:
        """Forecast from a few uncompiled training steps of each group."""
        groups, failed = list[GroupForecast](), list[str]()
        for group in scheduler.groups:
            title = named([experiment.record for experiment in group.experiments])
            try:
                groups.append(_of_group(title, group.experiments, scheduler))
            except Exception as error:  # a plugin's model may raise anything
                failed.append(f"{title} would fail: {located(error)}")
        return cls(scheduler, groups, failed)

    @property
    def busy(self) -> int:
        """Number of workers with a population to train."""
        return min(self.scheduler.execution.workers, sum(group.populations for group in self.groups))

    @property
    def seconds(self) -> float:
        """Seconds of all runs with evenly shared work, at least the time of the longest population."""
        total = sum(group.populations * group.seconds for group in self.groups)
        return max(total / max(1, self.busy), max((group.seconds for group in self.groups), default=0.0))

    @property
    def memory(self) -> int:
        """Bytes of memory for the largest populations in training at the same time."""
        return sum(sorted(group.memory for group in self.groups for _ in range(group.populations))[-self.busy :])

    def lines(self, kind: str = "run") -> Iterator[str]:
        """Lines for the user; `kind` is the noun for the runs, such as "tuning run"."""
        left, begun = sum(group.runs for group in self.groups), self.scheduler.begun()
        done = len(self.scheduler.experiments) - sum(len(group.experiments) for group in self.scheduler.groups)
        yield f"{counted(done, kind)} done before; {counted(left, kind)} left{f', {begun} of them begun' if begun else ''}"
        for group in self.groups:
            yield group.line()
        if self.groups:
            yield (
                f"in all about {duration(self.seconds)} with {counted(self.busy, 'worker')}; training takes about "
                f"{memory(self.memory)} of {memory(free_memory(self.scheduler.execution.device))} free memory"
            )


def _of_group(title: str, group: list[Experiment], scheduler: Scheduler) -> GroupForecast:
    with as_in_runs(scheduler.execution.device):
        stacking = scheduler.stacking_of(group)
        population = group[: stacking.models]
        step = step_seconds(population, scheduler.execution.device)
    training = step * population[0].train.steps
    tested = sum(evaluation_tokens(each) + eval_step_tokens(each) for each in population)
    testing = training * tested / sum(map(training_tokens, population))
    return GroupForecast(title, len(group), stacking, step, training + testing)
