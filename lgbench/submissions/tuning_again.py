"""Tuning runs made again, as the footer of a run says that they were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count, islice, pairwise

import torch

from lgbench.experiment.experiment import Experiment
from lgbench.experiment.tuning import TuningRun, coarse
from lgbench.submissions.bounds import MAX_MODELS
from lgbench.training import cost
from lgbench.training.models import Trained
from lgbench.training.train import step_cost

Train = Callable[[str, Sequence[Experiment], bool], Trained]
"""Trains a population, whose title it is given, with a compiled step or not."""

_Made = tuple[str, int, bool]
"""A tuning run by its id, and how it was made: in a population of this size, compiled or not."""


class TuningAgain:
    """Makes tuning runs again, each once, however many files name it."""

    def __init__(self, device: torch.device, train: Train) -> None:
        self.device, self.train = device, train
        self._done: dict[_Made, TuningRun] = {}

    def runs(self, experiment: Experiment) -> list[TuningRun]:
        """Those that chose the learning rate of an experiment; none where it was not chosen."""
        tuning = experiment.record.tuning
        if tuning is None:
            return []
        every: list[tuple[_Made, Experiment]] = [
            ((run.run_id, filed.population, filed.compiled), run)
            for filed, run in zip(tuning.runs, experiment.tuning_runs, strict=True)
        ]
        groups: dict[tuple[Hashable, int, bool], list[Experiment]] = defaultdict(list)
        for made, run in every:
            if made not in self._done:
                groups[run.population_key, *made[1:]].append(run)
        for (_, population, compile), runs in groups.items():
            size = stack_size(runs[0], population, self.device)
            for start in range(0, len(runs), size):
                self._make(runs[start : start + size], size, population, compile)
        return [self._done[made] for made, _ in every]

    def _make(self, runs: Sequence[Experiment], size: int, population: int, compile: bool) -> None:
        record = runs[0].record
        title = f"tuning of {record.entry} on {record.task} again"
        trained = self.train(title, [*runs, *fillers(runs, size - len(runs))], compile)
        for index, run in enumerate(runs):
            points = [
                (step, trained.curve.loss[point, index].item(), step - before)
                for point, (before, step) in enumerate(pairwise([0, *trained.curve.steps]))
            ]
            losses, diverged = coarse(points, run.train.steps), trained.diverged[index]
            made = run.run_id, population, compile
            self._done[made] = TuningRun(run.train.lr, run.seed, losses, diverged, population, compile)


def stack_size(experiment: Experiment, population: int, device: torch.device) -> int:
    """How many models to train together: as many as then, or as many as fit."""
    size = min(population, MAX_MODELS)
    return min(size, cost.models_that_fit(step_cost(experiment), device)) if size > 1 else size


def fillers(experiments: Sequence[Experiment], number: int) -> Iterator[Experiment]:
    """The first experiment with the seeds after its own that are not taken."""
    first, taken = experiments[0], {experiment.seed for experiment in experiments}
    yield from islice((first.with_seed(seed) for seed in count(first.seed + 1) if seed not in taken), number)
