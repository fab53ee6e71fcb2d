"""The scheduler: from experiments to populations, shared with other processes that use the same results folder."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lgbench.execution import provenance
from lgbench.execution.device import Execution
from lgbench.execution.memory import require_memory
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.work_queue import Claim, WorkQueue
from lgbench.experiment.experiment import Experiment
from lgbench.results import run_files
from lgbench.training import cost
from lgbench.training.train import compiling_gain, step_cost

WAIT_SECONDS = 1.0
"""Between two looks at the claims of other processes, once nothing else is left to do."""


@dataclass(frozen=True)
class Work:
    """A population to train now, and whether to compile its step."""

    claim: Claim
    compile: bool


def path_of(experiment: Experiment, folder: Path) -> Path:
    """Where an experiment's run file is."""
    return run_files.path_for(folder, experiment.record)


def grouped(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Groups of experiments; the members of a group can train together."""
    groups: dict[Hashable, list[Experiment]] = defaultdict(list)
    for experiment in experiments:
        groups[experiment.population_key].append(experiment)
    return list(groups.values())


def populations(
    experiments: Sequence[Experiment],
    folder: Path,
    execution: Execution,
    display: ProgressDisplay,
    fail: Callable[[Sequence[Experiment], Exception], None],
) -> Iterator[Work]:
    """Yield every population that this process is to train, until all runs have files or were tried here.

    Calls `fail` with experiments whose first training step raises an error.
    """
    queue = WorkQueue(folder, {experiment: path_of(experiment, folder) for experiment in experiments})
    tried: set[Experiment] = set()
    known: dict[int, tuple[cost.Cost, int]] = {}  # by group: the cost of a model, and how many are trained together
    waiting = False

    def left(group: Sequence[Experiment]) -> list[Experiment]:
        return queue.unfinished([experiment for experiment in group if experiment not in tried])

    queue.clear()
    groups = grouped(queue.unfinished(experiments))
    while True:
        for index, group in enumerate(groups):
            while todo := left(group):
                if index not in known:
                    try:
                        each = step_cost(group[0], execution.device)
                        require_memory(group[0], each, cost.free_memory(execution.device))
                    except Exception as error:  # a plugin's model may raise anything
                        tried |= set(group)
                        fail(group, error)
                        break
                    known[index] = each, _most(todo, each, execution, display)
                each, most = known[index]
                claim = queue.take(todo, most, partial(provenance.made_by, device=execution.device))
                if not claim:
                    break
                tried |= set(claim.experiments)
                yield Work(claim, _compile(claim.experiments, each, execution, display))
                if claim.lease.lost:
                    tried -= set(claim.experiments)  # another process is making them
        elsewhere = sum(len(left(group)) for group in groups)
        if not elsewhere:
            queue.clear()
            return
        if not waiting:
            waiting = True
            display.say(f"waiting for {elsewhere} runs that other processes are making")
        time.sleep(WAIT_SECONDS)


def _most(todo: Sequence[Experiment], each: cost.Cost, execution: Execution, display: ProgressDisplay) -> int:
    """How many to train together: as asked for, else as many as fit into memory."""
    if execution.population is not None:
        return execution.population
    most = cost.models_that_fit(each, execution.device)
    if most < len(todo):
        display.say(f"memory is free for {most} of {len(todo)} models at once, so they are trained in several populations")
    return most


def _compile(population: Sequence[Experiment], each: cost.Cost, execution: Execution, display: ProgressDisplay) -> bool:
    """Whether to compile: as asked for, else where it takes less time in all."""
    if execution.compile is not None:
        return execution.compile
    saved, needed = compiling_gain(population, each, execution.device)
    if saved > needed:
        display.say(f"compiling the training step, which takes about {needed:.0f} s and saves about {saved:.0f} s")
    else:
        display.say(f"not compiling the training step, which would take about {needed:.0f} s and save about {saved:.0f} s")
    return saved > needed
