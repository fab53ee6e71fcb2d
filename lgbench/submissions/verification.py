"""Running runs again, as their files say they were made, and comparing every number.

On the machine that made a run, a second training has the same bits. On another one, or with another torch, numbers are rounded
otherwise, and training amplifies that: initial weights off by 1e-7 moved the TVD of dyck-2-3 by up to 0.12 in the mean over
lengths, and by 0.22 at one length; retrieval and set complement far less.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice

import torch

from lgbench.execution import provenance
from lgbench.execution.device import full_float32
from lgbench.execution.progress import ProgressDisplay
from lgbench.experiment.experiment import Experiment
from lgbench.measurement.chance import chance
from lgbench.measurement.evaluate import Score, evaluate
from lgbench.process.unchanged import unchanged
from lgbench.results.rows import Measured, rows_of
from lgbench.submissions.footer import shown
from lgbench.submissions.inspection import Run
from lgbench.submissions.verdict import Failure, Verdict
from lgbench.training import cost
from lgbench.training.train import Trained, step_cost, train

MAX_MODELS = 64
"""Models that are trained together at most to verify one run, whatever its file says."""


@dataclass(frozen=True)
class RerunPopulation:
    """Runs that are trained again together, with as many threads and among as many other models as when they were made."""

    runs: Sequence[Run]
    fillers: Sequence[Experiment]
    """Models that nobody asked about. They give the population its size, on which rounding depends."""
    threads: int
    compile: bool

    @property
    def experiments(self) -> list[Experiment]:
        return [*(run.experiment for run in self.runs), *self.fillers]


def drawn(runs: Sequence[Run], size: int | None) -> list[Run]:
    """`size` runs that nobody could foresee, in their order; all if there are not more."""
    if size is None or size >= len(runs):
        return list(runs)
    chosen = random.SystemRandom().sample(range(len(runs)), size)
    return [runs[index] for index in sorted(chosen)]


def verify(
    runs: Sequence[Run], device: torch.device, display: ProgressDisplay, single: float | None = None
) -> Iterator[Verdict | Failure]:
    """Train and test the runs again, write nothing, and say of each one whether its numbers are the same.

    `single` is how far apart numbers may be, and a third of it is that of means; None for what is known of rounding.
    """
    verifier = _Verifier(device, display, single)
    groups: dict[Hashable, list[Run]] = defaultdict(list)
    for run in runs:
        made = run.footer.execution
        key = (run.experiment.population_key, made.population, made.compiled, run.footer.environment.threads)
        groups[key].append(run)
    for group in groups.values():
        try:
            populations = list(_populations(group, device))
        except Exception as error:  # a plugin's model may raise anything
            yield from (Failure(run, error) for run in group)
            continue
        for population in populations:
            yield from verifier.outcomes(population)


def _populations(group: Sequence[Run], device: torch.device) -> Iterator[RerunPopulation]:
    """Populations of the size in which the runs were made, or of as many models as fit."""
    made, asked = group[0].footer.execution, group[0].footer.environment.threads
    size = min(made.population, MAX_MODELS)
    if size > 1:
        size = min(size, cost.models_that_fit(step_cost(group[0].experiment, device), device))
    ordered = sorted(group, key=_by_task_and_seed)
    for start in range(0, len(ordered), size):
        runs = ordered[start : start + size]
        fillers = list(_fillers([run.experiment for run in runs], size - len(runs)))
        yield RerunPopulation(runs, fillers, min(asked, os.cpu_count() or 1), made.compiled)


def _by_task_and_seed(run: Run) -> tuple[str, str, int]:
    record = run.experiment.record
    return record.task, str(record.protocol), record.seed


def _fillers(experiments: Sequence[Experiment], number: int) -> Iterator[Experiment]:
    """The first experiment with the seeds after its own that are not taken."""
    first, taken = experiments[0], {experiment.seed for experiment in experiments}
    yield from islice((first.with_seed(seed) for seed in count(first.seed + 1) if seed not in taken), number)


class _Verifier:
    """Runs populations again on a device."""

    def __init__(self, device: torch.device, display: ProgressDisplay, single: float | None) -> None:
        self.device, self.display, self.single = device, display, single
        self._chance: dict[Hashable, list[Score]] = {}

    def outcomes(self, population: RerunPopulation) -> list[Verdict | Failure]:
        """One outcome for each run of the population."""
        try:
            with _threads(population.threads), full_float32(), unchanged(population.runs[0].experiment.plugins):
                trained = self._trained(population)
                return list(self._verdicts(population, trained))
        except Exception as error:  # a plugin's model may raise anything
            return [Failure(run, error) for run in population.runs]

    def _trained(self, population: RerunPopulation) -> Trained:
        experiments = population.experiments
        models = "1 model" if len(experiments) == 1 else f"{len(experiments)} models"
        with self.display.phase(f"train {population.runs[0].title} again ({models})", experiments[0].train.steps) as report:
            return train(experiments, self.device, report, compile=population.compile, say=self.display.say)

    def _verdicts(self, population: RerunPopulation, trained: Trained) -> Iterator[Verdict]:
        """Test every run of the population, and no filler."""
        with self.display.phase(f"evaluate {population.runs[0].title} again", len(population.runs)) as report:
            for index, run in enumerate(population.runs):
                experiment = run.experiment
                scores = evaluate(experiment, trained.models(index), self.device)
                measured = Measured(scores, self._chance_of(run), trained.curve, index, trained.diverged[index])
                otherwise = list(_otherwise(run, trained, population, self.device))
                yield Verdict.of(run, rows_of(experiment, measured), otherwise, self.single)
                report(index + 1, None)

    def _chance_of(self, run: Run) -> list[Score]:
        """The chance level of a run's task, found once for all its runs."""
        experiment = run.experiment
        same = (experiment.record.task, experiment.train, experiment.evaluate, run.footer.measurements)
        if same not in self._chance:
            known = chance(experiment.task, experiment.measurements, experiment.train, experiment.evaluate)
            self._chance[same] = known
        return self._chance[same]


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _otherwise(run: Run, trained: Trained, population: RerunPopulation, device: torch.device) -> Iterator[str]:
    """A sentence for each thing that rounding depends on and that is not as it was."""
    there, made = run.footer.environment, run.footer.execution
    for name, filed, here in (
        ("torch", there.torch, torch.__version__),
        ("the device", there.device, provenance.device_name(device)),
        ("the number of threads", there.threads, population.threads),
        ("the number of models in the population", made.population, len(population.experiments)),
    ):
        if filed != here:
            yield f"{name} is {shown(filed)} in the file and {shown(here)} here"
    if made.compiled != trained.compiled:
        yield "the step was compiled and is not here" if made.compiled else "the step is compiled here and was not"
    if device.type != "cpu":
        yield "a GPU adds in no fixed order"
