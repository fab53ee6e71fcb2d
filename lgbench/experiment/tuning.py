"""Tuning: the learning rates that are tried for an entry on a task, and the choice among them.

Each rate is tried on seeds that no result has, for a part of the steps. The loss at the end of these trainings alone decides.
Training data are fresh draws, so that is the loss in distribution, and nothing beyond the training length is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

SEEDS = (1_000_000, 1_000_001)
"""The seeds of all tuning runs. No result under a protocol that tries learning rates has one of them."""
SHARE = 4
"""A tuning run has as many steps as a run divided by this number."""
TEST = {"evaluate.contexts": "1", "evaluate.strings": "4", "evaluate.points": "0"}
"""The test of a tuning run, as --set has it: as small as it can be, since nobody reads it."""
MAX_POPULATION = 2**20
"""More models than any memory holds."""
TENTHS = 10
"""Points of the loss curve that is kept of a tuning run, at most."""


@dataclass(frozen=True)
class TuningRun:
    """One tuning run, after it ended."""

    lr: float
    seed: int
    losses: tuple[float | None, ...]
    """The mean training loss of each tenth of the steps, in nats; None where it is not finite."""
    diverged_step: int | None
    population: int
    """Models that were trained together."""
    compiled: bool

    @property
    def loss(self) -> float:
        """The loss that chooses the learning rate: the mean of the last tenth of the steps; infinite if the training diverged.

        >>> TuningRun(0.1, 0, (2.0, 1.5), None, 1, False).loss, TuningRun(0.1, 0, (2.0, 1.5), 7, 1, False).loss
        (1.5, inf)
        """
        last = self.losses[-1] if self.losses else None
        return math.inf if last is None or self.diverged_step is not None else last


@dataclass(frozen=True)
class Tuning:
    """The learning rates that are tried for a run, and the outcome once there is one."""

    grid: tuple[float, ...]
    """The learning rates, the smallest first."""
    seeds: tuple[int, ...]
    steps: int
    """Of each tuning run."""
    runs: tuple[TuningRun, ...] = ()
    """For each rate, in order, one for each seed; none before the tuning."""
    chosen: float | None = None
    """The learning rate of the run; None before the tuning."""

    def ended(self, runs: Sequence[TuningRun]) -> Tuning:
        """With its outcome."""
        done = replace(self, runs=tuple(runs))
        return replace(done, chosen=done.best)

    def loss(self, lr: float) -> float:
        """The mean over the seeds; infinite where one of them diverged."""
        losses = [run.loss for run in self.runs if run.lr == lr]
        return math.fsum(losses) / len(losses)

    @property
    def best(self) -> float:
        """The rate with the smallest loss, of equal ones the smallest rate: that is so too where all diverged."""
        return min(self.grid, key=lambda lr: (self.loss(lr), lr))


def rates(lr: float, factors: Sequence[float]) -> tuple[float, ...]:
    """The learning rates of a grid, the smallest first, to three digits.

    >>> rates(0.003, (1 / 3, 1, 3)), rates(0.002, (3, 1))
    ((0.001, 0.003, 0.009), (0.002, 0.006))
    """
    return tuple(sorted({float(f"{lr * factor:.3g}") for factor in factors}))


def tenths(steps: int) -> list[int]:
    """The last step of each tenth of a training.

    >>> tenths(25), tenths(3)
    ([2, 5, 8, 10, 12, 15, 18, 20, 22, 25], [1, 2, 3])
    """
    return sorted({max(1, round(steps * (i + 1) / TENTHS)) for i in range(TENTHS)})


def coarse(points: Sequence[tuple[int, float, int]], steps: int) -> tuple[float | None, ...]:
    """The mean loss of each tenth, from the points of a training curve: the last step, the mean loss, and the steps of each.

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
    """A sentence if the outcome of a tuning does not fit together, or with the learning rate and seed of its run."""
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
