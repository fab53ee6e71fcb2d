"""Testing a population while it trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from lgbench.experiment.contexts import point_steps
from lgbench.experiment.experiment import Experiment
from lgbench.measurement.evaluate import evaluate_point
from lgbench.measurement.soundness import Score
from lgbench.training.models import Models, Trained
from lgbench.training.train import Points


def points_of(population: Sequence[Experiment], device: torch.device) -> Points:
    """Every measurement of each model at the points of its protocol."""

    def measure(now: Models) -> list[list[Score]]:
        return [evaluate_point(experiment, now.models(index), device) for index, experiment in enumerate(population)]

    first = population[0]  # all share their settings
    return Points(frozenset(point_steps(first.train, first.evaluate)), measure)


def scores_at_points(trained: Trained, index: int) -> Mapping[int, Sequence[Score]]:
    """The scores of one model that :func:`points_of` measured, by step."""
    return {step: [Score(*score) for score in found[index]] for step, found in trained.measured.items()}
