"""Running runs again, as their files say they were made, and comparing every number.

On the machine that a run was made on a training has the same bits again. On another one, or with another torch, numbers are
rounded otherwise, and training amplifies that: initial weights off by 1e-7 moved the TVD of dyck-2-3 by up to 0.12 in the mean
over lengths, and by 0.22 at one length; retrieval and set complement far less.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice

import torch

from lgbench.audit.agreement import Difference, Numbers, Tolerance, differences, farthest, numbers_in, numbers_of
from lgbench.audit.footer import shown
from lgbench.audit.inspection import Run
from lgbench.evaluate import evaluate
from lgbench.experiment import Experiment
from lgbench.registry import Registry
from lgbench.running import provenance
from lgbench.running.execution import full_float32
from lgbench.running.watcher import Watcher
from lgbench.training import cost
from lgbench.training.train import Trained, population_key, step_cost, train

MOST_MODELS = 64
"""Trained together at most to verify one run, whatever its file says."""

MOST_DIFFERENCES = 5
"""Of a run that are shown."""

SAME_BITS = Tolerance(single=1e-4, mean=None, points=True)
"""Where everything is as it was; far more than a rounding in the last digit of a score, far less than any rank depends on."""

OTHER_ROUNDING = Tolerance(single=0.3, mean=0.1, points=False)
"""Where rounding differs, which was seen to move a mean by 0.12 at most, and in nearly all trainings by far less than 0.1."""


@dataclass(frozen=True)
class Stack:
    """Runs that are trained again together, on so many threads, among as many others as when they were made."""

    runs: Sequence[Run]
    fillers: Sequence[Experiment]
    """Models that nobody asked about; they give the stack its size, on which rounding depends."""
    threads: int
    compile: bool

    @property
    def experiments(self) -> list[Experiment]:
        return [*(run.experiment for run in self.runs), *self.fillers]


@dataclass(frozen=True)
class Again:
    """What a run is when it is made again."""

    numbers: Numbers
    diverged: int | None
    compiled: bool


@dataclass(frozen=True)
class Verdict:
    """What running again said about a file."""

    run: Run
    differences: Sequence[Difference]
    """Beyond the tolerance, the worst first."""
    compared: int
    farthest: float
    """How far apart the two values of a score are at most: what a wide tolerance would hide."""
    tolerance: Tolerance
    otherwise: Sequence[str]
    """What is otherwise than when the file was made, of all that rounding depends on."""

    @property
    def agrees(self) -> bool:
        return not self.differences

    def lines(self) -> Iterator[str]:
        """The verdict as it is read."""
        if not self.differences:
            agree = f"{self.compared} numbers agree {self.tolerance}, scores are {self.farthest:.2g} apart at most"
            yield f"verified: {self.run.title}: {agree}; {self._why()}"
            return
        first, *others = [difference.sentence for difference in self.differences[:MOST_DIFFERENCES]]
        yield f"differs: {self.run.title}: {first}"
        yield from (f"  {sentence}" for sentence in others)
        if len(self.differences) > MOST_DIFFERENCES:
            yield f"  and {len(self.differences) - MOST_DIFFERENCES} more"
        yield f"  expected {self.tolerance}; {self._why()}"

    def _why(self) -> str:
        return "; ".join(self.otherwise) if self.otherwise else "torch, device, threads and stack are as in the file"


@dataclass(frozen=True)
class Failure:
    """A run that broke when it was made again."""

    run: Run
    error: Exception
    agrees = False

    def lines(self) -> Iterator[str]:
        yield f"failed: {self.run.title}: it cannot be run again here: {type(self.error).__name__}: {self.error}"


def drawn(runs: Sequence[Run], size: int | None) -> list[Run]:
    """`size` of the runs that nobody could foresee, in their order; all if there are not more."""
    if size is None or size >= len(runs):
        return list(runs)
    chosen = random.SystemRandom().sample(range(len(runs)), size)
    return [runs[index] for index in sorted(chosen)]


def verify(
    runs: Sequence[Run], registry: Registry, device: torch.device, watcher: Watcher, single: float | None = None
) -> Iterator[Verdict | Failure]:
    """Train and test the runs again, writing nothing, and say of each whether its numbers are the same.

    `single` is how far apart numbers may be instead of what is known of rounding, and means a third of that.
    """
    groups: dict[Hashable, list[Run]] = defaultdict(list)
    for run in runs:
        made = run.footer.execution
        key = (population_key(run.experiment, registry), made.population, made.compiled, run.footer.environment.threads)
        groups[key].append(run)
    for group in groups.values():
        try:
            stacks = list(_stacks(group, registry, device))
        except Exception as error:  # a plugin's model may raise anything
            yield from (Failure(run, error) for run in group)
            continue
        for stack in stacks:
            yield from _outcomes(stack, registry, device, watcher, single)


def _stacks(group: Sequence[Run], registry: Registry, device: torch.device) -> Iterator[Stack]:
    """Stacks of the size in which the runs were made, or as many models as can be had."""
    made, asked = group[0].footer.execution, group[0].footer.environment.threads
    size = min(made.population, MOST_MODELS)
    if size > 1:
        size = min(size, cost.models_that_fit(step_cost(group[0].experiment, registry, device), device))
    ordered = sorted(group, key=lambda run: (run.experiment.task, run.experiment.protocol, run.experiment.seed))
    for start in range(0, len(ordered), size):
        runs = ordered[start : start + size]
        fillers = list(_fillers([run.experiment for run in runs], size - len(runs)))
        yield Stack(runs, fillers, min(asked, os.cpu_count() or 1), made.compiled)


def _fillers(experiments: Sequence[Experiment], number: int) -> Iterator[Experiment]:
    """The first experiment with the seeds that follow, those left out which are there."""
    first, taken = experiments[0], {experiment.seed for experiment in experiments}
    yield from islice((replace(first, seed=seed) for seed in count(first.seed + 1) if seed not in taken), number)


def _outcomes(
    stack: Stack, registry: Registry, device: torch.device, watcher: Watcher, single: float | None
) -> list[Verdict | Failure]:
    try:
        with _threads(stack.threads), full_float32():
            trained = _trained(stack, registry, device, watcher)
            rerun = _tested(stack, trained, registry, device, watcher)
    except Exception as error:  # a plugin's model may raise anything
        return [Failure(run, error) for run in stack.runs]
    return [_verdict(run, again, stack, device, single) for run, again in zip(stack.runs, rerun, strict=True)]


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trained(stack: Stack, registry: Registry, device: torch.device, watcher: Watcher) -> Trained:
    experiments = stack.experiments
    models = "1 model" if len(experiments) == 1 else f"{len(experiments)} models"
    with watcher.phase(f"train {stack.runs[0].title} again ({models})", experiments[0].train.steps) as report:
        return train(experiments, registry, device, report, compile=stack.compile, say=watcher.say)


def _tested(stack: Stack, trained: Trained, registry: Registry, device: torch.device, watcher: Watcher) -> list[Again]:
    """Every number of every run of the stack; fillers are not tested."""
    found: list[Again] = []
    with watcher.phase(f"evaluate {stack.runs[0].title} again", len(stack.runs)) as report:
        for index, run in enumerate(stack.runs):
            experiment = run.experiment
            models = {variant: trained.model(variant, index) for variant in trained.weights}
            task = registry.tasks[experiment.task]
            scores = evaluate(task, models, experiment.train, experiment.evaluate, experiment.seed, device)
            found.append(Again(numbers_of(scores, trained.curve, index), trained.diverged[index], trained.compiled))
            report(index + 1, None)
    return found


def _verdict(run: Run, again: Again, stack: Stack, device: torch.device, single: float | None) -> Verdict:
    otherwise = list(_otherwise(run, again, stack, device))
    tolerance = OTHER_ROUNDING if otherwise else SAME_BITS
    if single is not None:
        tolerance = replace(tolerance, single=single, mean=single / 3)
    filed = numbers_in(run.rows)
    found = differences(filed, again.numbers, tolerance)
    (diverged,) = run.rows.column("diverged_step").unique().to_pylist()
    if tolerance.points and diverged != again.diverged:
        found.insert(0, Difference(math.inf, f"diverged_step is {diverged} in the file and {again.diverged} here"))
    compared = sum(1 for key in filed if key.length is not None or tolerance.points)
    return Verdict(run, found, compared, farthest(filed, again.numbers), tolerance, otherwise)


def _otherwise(run: Run, again: Again, stack: Stack, device: torch.device) -> Iterator[str]:
    """What rounding depends on and is not as it was, a sentence each."""
    there, made = run.footer.environment, run.footer.execution
    for name, filed, here in (
        ("torch", there.torch, torch.__version__),
        ("the device", there.device, provenance.device_name(device)),
        ("the number of threads", there.threads, stack.threads),
        ("the stack's number of models", made.population, len(stack.experiments)),
    ):
        if filed != here:
            yield f"{name} is {shown(filed)} in the file and {shown(here)} here"
    if made.compiled != again.compiled:
        yield "the step was compiled and is not here" if made.compiled else "the step is compiled here and was not"
    if device.type != "cpu":
        yield "a GPU adds in no fixed order"
