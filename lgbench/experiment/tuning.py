"""Tuning: a grid of learning rates for an entry on a task, and the choice of a rate.

Each rate is tried with reserved seeds, for a share of the steps. Only the loss at the end of these trainings decides. Training
data are fresh draws, so this loss is in-distribution, and no length beyond the training length has an influence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

SEEDS = (1_000_000, 1_000_001)
"""Seeds of all tuning runs, reserved: results under a protocol with tuning have other seeds."""
SHARE = 4
"""Steps of a run per step of a tuning run."""
TEST = {"evaluate.contexts": "1", "evaluate.strings": "4", "evaluate.points": "0"}
"""Test settings of a tuning run, as for --set: minimal, since only the training loss counts."""
MAX_POPULATION = 2**20
"""Upper limit for plausible populations, above the memory of any machine."""
TENTHS = 10
"""Largest number of points in the stored loss curve of a tuning run."""


@dataclass(frozen=True)
class TuningRun:
    """A finished tuning run."""

    lr: float
    seed: int
    losses: tuple[float | None, ...]
    """Mean training loss of each tenth of the steps, in nats; None for a loss that is not finite."""
    diverged_step: int | None
    population: int
    """Number of models trained together."""
    compiled: bool

    @property
    def loss(self) -> float:
        """Loss for the choice of the learning rate: mean over the last tenth of the steps; infinite for a diverged training.

        >>> TuningRun(0.1, 0, (2.0, 1.5), None, 1, False).loss, TuningRun(0.1, 0, (2.0, 1.5), 7, 1, False).loss
        (1.5, inf)
        """
        last = self.losses[-1] if self.losses else None
        return math.inf if last is None or self.diverged_step is not None else last


@dataclass(frozen=True)
class Tuning:
    """Grid of learning rates for a run, and the outcome of a finished tuning."""

    grid: tuple[float, ...]
    """Learning rates, ascending."""
    seeds: tuple[int, ...]
    steps: int
    """Steps of each tuning run."""
    runs: tuple[TuningRun, ...] = ()
    """Runs ordered by rate, then seed; empty before the tuning."""
    chosen: float | None = None
    """Chosen learning rate; None before the tuning."""

    def ended(self, runs: Sequence[TuningRun]) -> Tuning:
        """Copy with the outcome of the tuning."""
        done = replace(self, runs=tuple(runs))
        return replace(done, chosen=done.best)

    def loss(self, lr: float) -> float:
        """Mean loss over the seeds; infinite if any training diverged."""
        losses = [run.loss for run in self.runs if run.lr == lr]
        return math.fsum(losses) / len(losses)

    @property
    def best(self) -> float:
        """Learning rate with the lowest loss; ties, including 'all diverged', go to the smallest rate."""
        return min(self.grid, key=lambda lr: (self.loss(lr), lr))


def rates(lr: float, factors: Sequence[float]) -> tuple[float, ...]:
    """Learning rates of a grid, ascending, rounded to three digits.

    >>> rates(0.003, (1 / 3, 1, 3)), rates(0.002, (3, 1))
    ((0.001, 0.003, 0.009), (0.002, 0.006))
    """
    return tuple(sorted({float(f"{lr * factor:.3g}") for factor in factors}))


def tenths(steps: int) -> list[int]:
    """Last step of each tenth of a training.

    >>> tenths(25), tenths(3)
    ([2, 5, 8, 10, 12, 15, 18, 20, 22, 25], [1, 2, 3])
    """
    return sorted({max(1, round(steps * (i + 1) / TENTHS)) for i in range(TENTHS)})


def coarse(points: Sequence[tuple[int, float, int]], steps: int) -> tuple[float | None, ...]:
    """Mean loss of each tenth of a training, from points of a training curve: last step, mean loss, number of steps.

    >>> coarse([(1, 4.0, 1), (2, 2.0, 1), (4, 1.0, 2)], 4)[-1]
    1.0
    """
    found: list[float | None] = []
    before = 0
    for mark in tenths(steps):
        own = [(loss, n) for step, loss, n in points if before < step <= mark]
        if own:
            mean = math.fsum(loss * n for loss, n in own) / sum(n for _, n in own)
            found.append(mean if math.isfinite(mean) else None)
        before = mark
    return tuple(found)


def wrong(tuning: Tuning, lr: float, seed: int) -> str | None:
    """Sentence about an inconsistent tuning, or a contradiction with its run's learning rate or seed; None if consistent."""
    tried = [(run.lr, run.seed) for run in tuning.runs]
    if tried != [(rate, own) for rate in tuning.grid for own in tuning.seeds] or not tried:
        return "tuning.runs does not have each rate of the grid with each tuning seed once, in order"
    points = len(tenths(tuning.steps)) if tuning.steps > 0 else 0
    for run in tuning.runs:
        named = f"the tuning run with the rate {run.lr:g} and seed {run.seed}"
        if len(run.losses) != points:
            return f"{named} has {len(run.losses)} losses, expected {points}"
        if not 1 <= run.population <= MAX_POPULATION:
            return f"{named} was trained in a population of {run.population}, expected from 1 to {MAX_POPULATION}"
        if any(loss is not None and loss < 0 for loss in run.losses):
            return f"{named} has a loss below 0"
        if run.diverged_step is None and None in run.losses:
            return f"{named} has a loss that is not finite, and says that it did not diverge"
        if run.diverged_step is not None and not 1 <= run.diverged_step <= tuning.steps:
            return f"{named} diverged at step {run.diverged_step} of {tuning.steps}"
    if tuning.chosen != tuning.best:
        return f"tuning.chosen is {tuning.chosen}, and the losses of the tuning runs choose {tuning.best}"
    if lr != tuning.chosen:
        return f"train.lr is {lr}, and the tuning chose {tuning.chosen}"
    if seed in tuning.seeds:
        return f"its seed {seed} is one of those that chose its learning rate"
    return None
