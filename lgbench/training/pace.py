"""The pace of a training, measured in its first steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from lgbench.experiment.experiment import Experiment
from lgbench.training.data import CHUNK, stream
from lgbench.training.population import Population

MOST_STEPS = 20
ENOUGH_SECONDS = 1.0
"""After so long no further step is measured."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a step of a whole population, its data and its averages included, measured over so many steps."""

    seconds: float
    steps: int


def measured(experiments: Sequence[Experiment], device: torch.device) -> Pace:
    """Train a population for a few steps, not compiled, and forget it. The first step is not counted, if there is another."""
    training = experiments[0].train
    with torch.no_grad():
        population = Population(experiments, device)
        started = time.perf_counter()
        found: list[float] = []
        drawing = 0.0
        for step, batch in enumerate(stream([(e.task, e.seed) for e in experiments], training, device), start=1):
            drawing = drawing or (time.perf_counter() - started) / min(CHUNK, training.steps)
            before = time.perf_counter()
            population.draw_noise(step)
            losses = population.advance(*batch.tensors)
            if step % training.average_every == 0:
                population.average()
            losses[0].item()  # waits for a GPU
            found.append(time.perf_counter() - before)
            if step > MOST_STEPS or (step > 1 and time.perf_counter() - started > ENOUGH_SECONDS):
                break
    counted = found[1:] or found
    return Pace(drawing + median(counted), len(counted))
