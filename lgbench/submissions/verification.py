"""Verification: a rerun of training and test, and a comparison of all numbers with the file.

A rerun on the original machine is equal to the bit. Another machine or torch version rounds differently, and training amplifies
rounding. A change of initial weights by 1e-7 moved the TVD of dyck-2-3 by up to 0.12 in the mean over lengths, and by 0.22 at
one length; retrieval and set complement moved far less.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from lgbench.errors import lacks_memory
from lgbench.execution.device import device_name, full_float32, keep_freed_memory, threads
from lgbench.execution.progress import Phase, ProgressDisplay
from lgbench.execution.runner import points_of, scores_at_points
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.tuning import TuningRun, coarse
from lgbench.extensions.loading import libraries_of
from lgbench.kept import models_of
from lgbench.measurement.chance import chance
from lgbench.measurement.evaluate import evaluate
from lgbench.measurement.probing import probe
from lgbench.measurement.scores import Score
from lgbench.results.rows import Measured, rows_of
from lgbench.results.stored_runs import StoredRun
from lgbench.submissions.inspection import Run
from lgbench.submissions.verdict import SAME_BITS, Failure, RerunVerdict, Tolerance
from lgbench.training.models import NO_CURVE, Models, Trained
from lgbench.training.train import NO_POINTS, train

MAX_MODELS = 64
"""Largest population of a rerun, against exhausted memory by a wrong number in a file."""


def drawn(runs: Sequence[StoredRun], size: int | None) -> list[StoredRun]:
    """Unpredictable sample of `size` runs, in order; all runs for None or a larger `size`."""
    if size is None or size >= len(runs):
        return list(runs)
    chosen = random.SystemRandom().sample(range(len(runs)), size)
    return [runs[index] for index in sorted(chosen)]


@dataclass(frozen=True)
class RerunManner:
    """Conditions of a training with an effect on rounding: size of the population, compiled step, threads."""

    population: int
    compiled: bool
    threads: int

    @classmethod
    def of(cls, run: Run) -> RerunManner:
        """Conditions from the metadata of a run, within the limits of the local machine."""
        made = run.metadata.execution
        number = min(run.metadata.environment.threads, os.cpu_count() or 1)
        return cls(min(made.population, MAX_MODELS), made.compiled, number)


def verify(
    runs: Sequence[Run], device: torch.device, display: ProgressDisplay, tolerance: Tolerance = SAME_BITS, tuning: bool = True
) -> Iterator[RerunVerdict | Failure]:
    """Verdict on each run after a rerun of training and test. Writes nothing.

    With `tuning`, the tuning runs behind the learning rates are trained again too, each once.
    """
    verifier = Verifier(device, display, tolerance, tuning)
    groups: dict[tuple[Hashable, RerunManner], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.experiment.population_key, RerunManner.of(run)].append(run)
    for (_, manner), group in groups.items():
        ordered = sorted(group, key=lambda run: (run.stored.record.task, run.stored.record.seed))
        for start in range(0, len(ordered), manner.population):
            yield from verifier.outcomes(ordered[start : start + manner.population], manner)


class Verifier:
    """Reruns on a device, with one computation of each tuning run and each context-free baseline."""

    def __init__(self, device: torch.device, display: ProgressDisplay, tolerance: Tolerance, tuning: bool = True) -> None:
        self.device, self.display, self.tolerance, self.tuning = device, display, tolerance, tuning
        self._tuned: dict[tuple[str, int, bool], TuningRun] = {}
        """By run id, population and whether the step was compiled."""
        self._chance: dict[Hashable, list[Score]] = {}

    def outcomes(self, runs: Sequence[Run], manner: RerunManner) -> list[RerunVerdict | Failure]:
        """One outcome for each run of a population, trained together, or in halves if memory does not suffice."""
        keep_freed_memory()
        experiments = [run.experiment for run in runs]
        try:
            with threads(manner.threads), full_float32():
                trained = self._trained(f"{runs[0].title} again", experiments, manner.population, manner.compiled)
                return list(self._verdicts(runs, manner, trained))
        except Exception as error:  # a plugin's model may raise anything
            if manner.population == 1 or not lacks_memory(error):
                return [Failure(run, error) for run in runs]
        half = replace(manner, population=(manner.population + 1) // 2)
        parts = [runs[start : start + half.population] for start in range(0, len(runs), half.population)]
        return [outcome for part in parts for outcome in self.outcomes(part, half)]

    def _trained(
        self, title: str, experiments: Sequence[Experiment], population: int, compile: bool, tested: bool = True
    ) -> Trained:
        """Experiments trained in a population of a given size.

        Copies of the last experiment fill the population: rounding depends on the number of models, not on the other models.
        """
        whole = [*experiments, *[experiments[-1]] * (population - len(experiments))]
        models = "1 model" if len(whole) == 1 else f"{len(whole)} models"
        points = points_of(experiments, self.device) if tested else NO_POINTS
        with self.display.phase(Phase.train(f"{title} ({models})", whole)) as report:
            return train(whole, self.device, report, points=points, compile=compile, say=self.display.say)

    def _verdicts(self, runs: Sequence[Run], manner: RerunManner, trained: Trained) -> Iterator[RerunVerdict]:
        """Test every run, then make its tuning runs again."""
        found = []
        asked = [run.experiment for run in runs]
        with self.display.phase(Phase.evaluate(f"{runs[0].title} again", asked)) as report:
            for index, run in enumerate(runs):
                scores = evaluate(run.experiment, trained.models(index), self.device)
                scores += probe(run.experiment, partial(_model_on, trained, index), self.device).scores
                points, level = scores_at_points(trained, index), self._chance_of(run)
                measured = Measured(scores, points, level, trained.curve, index, trained.diverged[index])
                otherwise = [*_other_machine(run, manner.threads, self.device), *_other_population(run, trained)]
                found.append(RerunVerdict.of(run, rows_of(run.experiment, measured), otherwise, self.tolerance))
                report(index + 1, None)
        for verdict in found:
            yield verdict.with_tuning(self._tuning_runs(verdict.run.experiment)) if self.tuning else verdict

    def _chance_of(self, run: Run) -> list[Score]:
        """Context-free baseline of the task of a run."""
        experiment = run.experiment
        same = (experiment.record.task, experiment.train, experiment.evaluate, run.metadata.measurements)
        if same not in self._chance:
            known = chance(experiment.task, experiment.measurements, experiment.train, experiment.evaluate)
            self._chance[same] = known
        return self._chance[same]

    def _tuning_runs(self, experiment: Experiment) -> list[TuningRun]:
        """Reruns of the tuning runs behind the learning rate of an experiment; none for a fixed learning rate."""
        tuning = experiment.record.tuning
        if tuning is None:
            return []
        every = [(filed, experiment.tuning_run(filed.lr, filed.seed)) for filed in tuning.runs]
        groups: dict[tuple[Hashable, int, bool], list[Experiment]] = defaultdict(list)
        for filed, run in every:
            if (run.run_id, filed.population, filed.compiled) not in self._tuned:
                groups[run.population_key, filed.population, filed.compiled].append(run)
        for (_, population, compiled), runs in groups.items():
            size = min(population, MAX_MODELS)
            for start in range(0, len(runs), size):
                self._tune(runs[start : start + size], size, population, compiled)
        return [self._tuned[run.run_id, filed.population, filed.compiled] for filed, run in every]

    def _tune(self, runs: Sequence[Experiment], size: int, population: int, compiled: bool) -> None:
        title = f"tuning of {runs[0].record.entry} on {runs[0].record.task} again"
        trained = self._trained(title, runs, size, compiled, tested=False)
        marks = [0, *trained.curve.steps]
        for index, run in enumerate(runs):
            losses = trained.curve.loss[:, index].tolist()
            points = [(step, loss, step - before) for (before, step), loss in zip(pairwise(marks), losses, strict=True)]
            again = TuningRun(
                run.train.lr, run.seed, coarse(points, run.train.steps), trained.diverged[index], population, compiled
            )
            self._tuned[run.run_id, population, compiled] = again


def evaluate_again(
    runs: Sequence[Run], device: torch.device, display: ProgressDisplay, tolerance: Tolerance = SAME_BITS
) -> Iterator[RerunVerdict | Failure]:
    """Verdict on each run after a second test of its kept weights. Trains and writes nothing.

    Measurements during training and the training curve are not compared.
    """
    keep_freed_memory()
    for run in runs:
        try:
            yield _tested_again(run, device, display, tolerance)
        except Exception as error:  # the weights are missing, or a plugin's model raises anything
            yield Failure(run, error)


def _tested_again(run: Run, device: torch.device, display: ProgressDisplay, tolerance: Tolerance) -> RerunVerdict:
    experiment, number = run.experiment, RerunManner.of(run).threads
    content = run.stored.weights()
    with threads(number), full_float32():
        whole = models_of(run.stored, experiment, content, device)
        with display.phase(Phase.evaluate(f"{run.title} again", [experiment])) as report:
            scores = evaluate(experiment, whole.models(0), device)
            scores += probe(experiment, partial(_model_on, whole, 0), device).scores
            report(1, None)
    diverged = run.rows["diverged_step"][0].as_py()
    again = rows_of(experiment, Measured(scores, {}, (), NO_CURVE, 0, diverged))
    return RerunVerdict.of(run, again, list(_other_machine(run, number, device)), tolerance, by_weights=True)


def _model_on(models: Models, index: int, module: nn.Module) -> dict[str, Callable[[Tensor], Tensor]]:
    """Each variant of the weights of one model as a function, computed by another module of the same architecture."""
    return models.on(module).models(index)


def _other_population(run: Run, trained: Trained) -> Iterator[str]:
    """A sentence for each difference in training with an effect on rounding."""
    made = run.metadata.execution
    if made.population != trained.stack:
        yield f"the number of models in the population is {made.population} in the file and {trained.stack} here"
    if made.compiled != trained.compiled:
        yield "the step was compiled and is not here" if made.compiled else "the step is compiled here and was not"


def _other_machine(run: Run, threads: int, device: torch.device) -> Iterator[str]:
    """A sentence for each difference in software and machine with an effect on rounding."""
    there = run.metadata.environment
    pairs = [
        ("torch", there.torch, torch.__version__),
        ("the device", there.device, device_name(device)),
        ("the number of threads", there.threads, threads),
    ]
    for plugin in run.metadata.took_part.values():
        here = dict(libraries_of(plugin.name))
        pairs += [(library, version, here.get(library)) for library, version in plugin.libraries.items()]
    yield from (f"{name} is {filed!a:.100} in the file and {own!a} here" for name, filed, own in pairs if filed != own)
    if device.type != "cpu":
        yield "a GPU adds in no fixed order"
