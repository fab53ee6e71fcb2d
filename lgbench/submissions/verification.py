"""Running runs again, as their files say they were made, and comparing every number.

On the machine that made a run, a second training has the same bits. On another one, or with another torch, numbers are rounded
otherwise, and training amplifies that: initial weights off by 1e-7 moved the TVD of dyck-2-3 by up to 0.12 in the mean over
lengths, and by 0.22 at one length; retrieval and set complement far less.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import comb
from typing import TypeVar

import torch

from lgbench.execution import provenance
from lgbench.execution.device import full_float32, keep_freed_memory, threads
from lgbench.execution.points import points_of, scores_at_points
from lgbench.execution.progress import Phase, ProgressDisplay
from lgbench.experiment.experiment import Experiment
from lgbench.extensions.libraries import libraries_of
from lgbench.measurement.chance import chance
from lgbench.measurement.evaluate import evaluate
from lgbench.measurement.probing import probe
from lgbench.measurement.score import Score
from lgbench.results.rows import Measured, rows_of
from lgbench.submissions.agreement import Tolerance
from lgbench.submissions.deadline import Deadline
from lgbench.submissions.footer import shown
from lgbench.submissions.inspection import Run
from lgbench.submissions.tuning_again import TuningAgain, fillers, stack_size
from lgbench.submissions.verdict import SAME_BITS, Failure, Verdict
from lgbench.training.models import Trained
from lgbench.training.train import train

DEFAULT_SECONDS = 24 * 3600.0
"""How long one population may take."""

Drawn = TypeVar("Drawn")


@dataclass(frozen=True)
class RerunPopulation:
    """Runs that are trained again together, with as many threads and among as many other models as when they were made."""

    runs: Sequence[Run]
    fillers: Sequence[Experiment]
    """Models that nobody asked about. They give the population its size, on which rounding depends."""
    threads: int
    compile: bool

    @property
    def asked(self) -> list[Experiment]:
        return [run.experiment for run in self.runs]

    @property
    def experiments(self) -> list[Experiment]:
        return [*self.asked, *self.fillers]


def drawn(files: Sequence[Drawn], size: int | None) -> list[Drawn]:
    """`size` files that nobody could foresee, in their order; all if there are not more."""
    if size is None or size >= len(files):
        return list(files)
    chosen = random.SystemRandom().sample(range(len(files)), size)
    return [files[index] for index in sorted(chosen)]


def chance_to_draw(files: int, forged: int, size: int) -> float:
    """The probability that at least one of the forged files is among `size` that are drawn: hypergeometric."""
    return float(1 - Fraction(comb(files - forged, size), comb(files, size)))


def chances(files: int, size: int) -> dict[int, float]:
    """:func:`chance_to_draw` for one forged file, and for 5, 10 and 25 % of the files."""
    forged = sorted({1, *(max(1, round(files * share)) for share in (0.05, 0.1, 0.25))})
    return {number: chance_to_draw(files, number, size) for number in forged}


def verify(
    runs: Sequence[Run],
    device: torch.device,
    display: ProgressDisplay,
    tolerance: Tolerance = SAME_BITS,
    seconds: float = DEFAULT_SECONDS,
    tuning: bool = True,
) -> Iterator[Verdict | Failure]:
    """Train and test the runs again, write nothing, and say of each one whether its numbers are the same.

    With `tuning`, the tuning runs that chose learning rates are trained again, too, each once. No population takes much
    longer than `seconds`: after that its runs have failed.
    """
    verifier = _Verifier(device, display, tolerance, seconds, tuning)
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
    size = stack_size(group[0].experiment, made.population, device)
    ordered = sorted(group, key=_by_task_and_seed)
    for start in range(0, len(ordered), size):
        runs = ordered[start : start + size]
        others = list(fillers([run.experiment for run in runs], size - len(runs)))
        yield RerunPopulation(runs, others, min(asked, os.cpu_count() or 1), made.compiled)


def _by_task_and_seed(run: Run) -> tuple[str, str, int]:
    record = run.experiment.record
    return record.task, str(record.protocol), record.seed


class _Verifier:
    """Runs populations again on a device."""

    def __init__(
        self, device: torch.device, display: ProgressDisplay, tolerance: Tolerance, seconds: float, tuning: bool
    ) -> None:
        self.device, self.display, self.tolerance, self.deadline = device, display, tolerance, Deadline(seconds)
        self._chance: dict[Hashable, list[Score]] = {}
        self._tuning = TuningAgain(device, self._trained) if tuning else None

    def outcomes(self, population: RerunPopulation) -> list[Verdict | Failure]:
        """One outcome for each run of the population."""
        keep_freed_memory()
        try:
            with threads(population.threads), full_float32():
                title = f"{population.runs[0].title} again"
                trained = self._trained(title, population.experiments, population.compile, population.asked)
                return list(self._verdicts(population, trained))
        except Exception as error:  # a plugin's model may raise anything
            return [Failure(run, error) for run in population.runs]

    def _trained(
        self, title: str, experiments: Sequence[Experiment], compile: bool, tested: Sequence[Experiment] = ()
    ) -> Trained:
        """`tested`, the first ones, are tested while they train. From now on there is as much time as a population may take."""
        self.deadline.start()
        models = "1 model" if len(experiments) == 1 else f"{len(experiments)} models"
        with self.display.phase(Phase.train(f"{title} ({models})", experiments)) as report:

            def in_time(step: int, loss: Callable[[], float]) -> None:
                self.deadline.require()
                report(step, loss)

            points = points_of(tested or experiments, self.device, self.deadline.asking)
            return train(experiments, self.device, in_time, points=points, compile=compile, say=self.display.say)

    def _verdicts(self, population: RerunPopulation, trained: Trained) -> Iterator[Verdict]:
        """Test every run of the population, and no filler. Then make the tuning runs again."""
        found = []
        with self.display.phase(Phase.evaluate(f"{population.runs[0].title} again", population.asked)) as report:
            for index, run in enumerate(population.runs):
                experiment = run.experiment
                models = partial(self.deadline.models, trained, index)
                scores = evaluate(experiment, models(), self.device)
                scores += probe(experiment, models, self.device).scores
                points = scores_at_points(trained, index)
                measured = Measured(scores, points, self._chance_of(run), trained.curve, index, trained.diverged[index])
                otherwise = list(_otherwise(run, trained, population, self.device))
                found.append(Verdict.of(run, rows_of(experiment, measured), otherwise, self.tolerance))
                report(index + 1, None)
        for verdict in found:
            yield verdict.with_tuning(self._tuning.runs(verdict.run.experiment)) if self._tuning else verdict

    def _chance_of(self, run: Run) -> list[Score]:
        """The chance level of a run's task, found once for all its runs."""
        experiment = run.experiment
        same = (experiment.record.task, experiment.train, experiment.evaluate, run.footer.measurements)
        if same not in self._chance:
            known = chance(experiment.task, experiment.measurements, experiment.train, experiment.evaluate)
            self._chance[same] = known
        return self._chance[same]


def _otherwise(run: Run, trained: Trained, population: RerunPopulation, device: torch.device) -> Iterator[str]:
    """A sentence for each thing that rounding depends on and that is not as it was."""
    made, here = run.footer.execution, len(population.experiments)
    yield from other_machine(run, population.threads, device)
    if made.population != here:
        yield f"the number of models in the population is {shown(made.population)} in the file and {shown(here)} here"
    if made.compiled != trained.compiled:
        yield "the step was compiled and is not here" if made.compiled else "the step is compiled here and was not"


def other_machine(run: Run, threads: int, device: torch.device) -> Iterator[str]:
    """The same of what evaluation alone depends on, too."""
    there = run.footer.environment
    for name, filed, here in (
        ("torch", there.torch, torch.__version__),
        ("the device", there.device, provenance.device_name(device)),
        ("the number of threads", there.threads, threads),
    ):
        if filed != here:
            yield f"{name} is {shown(filed)} in the file and {shown(here)} here"
    for plugin in run.footer.took_part.values():
        here_too = dict(libraries_of(plugin.name))
        for library, filed in plugin.libraries.items():
            if filed != here_too.get(library):
                yield f"{shown(library)[1:-1]} is {shown(filed)} in the file and {shown(here_too.get(library))} here"
    if device.type != "cpu":
        yield "a GPU adds in no fixed order"
