"""From a grid of experiments to populations, one after the other, shared with other processes at work in the same folder."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lgbench import runfiles
from lgbench.experiment import Experiment
from lgbench.registry import Registry
from lgbench.running import provenance
from lgbench.running.claims import Claim, Claims
from lgbench.running.execution import Execution
from lgbench.running.watcher import Watcher
from lgbench.training import cost
from lgbench.training.train import compiling_gain, population_key, step_cost

WAIT_SECONDS = 1.0
"""Between two looks at what other processes are doing, once nothing else is left to do."""


@dataclass(frozen=True)
class Work:
    """A population to train now, and whether to compile its step."""

    claim: Claim
    compile: bool


def path_of(experiment: Experiment, folder: Path) -> Path:
    """Where an experiment's run file lives."""
    return runfiles.path_for(folder, experiment.task, experiment.entry, experiment.seed, experiment.run_id)


def stacks(experiments: Sequence[Experiment], registry: Registry) -> list[list[Experiment]]:
    """Experiments that can be trained as one stack, together."""
    groups: dict[Hashable, list[Experiment]] = defaultdict(list)
    for experiment in experiments:
        groups[population_key(experiment, registry)].append(experiment)
    return list(groups.values())


def populations(
    experiments: Sequence[Experiment],
    registry: Registry,
    folder: Path,
    execution: Execution,
    watcher: Watcher,
    fail: Callable[[Sequence[Experiment], Exception], None],
) -> Iterator[Work]:
    """Every population that this process is to train, until all runs have files or were tried here.

    `fail` is given experiments whose first step already raised something.
    """
    claims = Claims(folder, {experiment: path_of(experiment, folder) for experiment in experiments})
    tried: set[Experiment] = set()
    known: dict[int, tuple[cost.Cost, int]] = {}  # of each group, what a model costs and how many are trained together
    waiting = False

    def left(group: Sequence[Experiment]) -> list[Experiment]:
        return claims.unfinished([experiment for experiment in group if experiment not in tried])

    claims.clear()
    groups = stacks(claims.unfinished(experiments), registry)
    while True:
        for index, group in enumerate(groups):
            made_by = provenance.made_by(group[0], registry, execution.device)
            while todo := left(group):
                if index not in known:
                    try:
                        each = step_cost(group[0], registry, execution.device)
                    except Exception as error:  # a plugin's model may raise anything
                        tried |= set(group)
                        fail(group, error)
                        break
                    known[index] = each, _most(todo, each, execution, watcher)
                each, most = known[index]
                claim = claims.take(todo, most, made_by)
                if not claim:
                    break
                tried |= set(claim.experiments)
                yield Work(claim, _compile(claim.experiments, each, registry, execution, watcher))
        elsewhere = sum(len(left(group)) for group in groups)
        if not elsewhere:
            claims.clear()
            return
        if not waiting:
            waiting = True
            watcher.say(f"waiting for {elsewhere} runs that other processes are making")
        time.sleep(WAIT_SECONDS)


def _most(todo: Sequence[Experiment], each: cost.Cost, execution: Execution, watcher: Watcher) -> int:
    """How many to train together: as asked for, else as many as fit into memory."""
    if execution.population is not None:
        return execution.population
    most = cost.models_that_fit(each, execution.device)
    if most < len(todo):
        watcher.say(f"memory is free for {most} of {len(todo)} models at once, so they are trained in several populations")
    return most


def _compile(
    population: Sequence[Experiment], each: cost.Cost, registry: Registry, execution: Execution, watcher: Watcher
) -> bool:
    """Whether to compile: as asked for, else where it takes less time in all."""
    if execution.compile is not None:
        return execution.compile
    saved, needed = compiling_gain(population, registry, each, execution.device)
    if saved > needed:
        watcher.say(f"compiling the training step, which takes about {needed:.0f} s and saves about {saved:.0f} s")
    else:
        watcher.say(f"not compiling the training step, which would take about {needed:.0f} s and save about {saved:.0f} s")
    return saved > needed
