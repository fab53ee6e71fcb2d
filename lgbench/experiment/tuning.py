"""Tuning: the learning rates tried for an entry on a task, and the choice of a rate.

An open grid goes on by factors of 3 where its best rate is at an end, and then tries factors of sqrt 3 around the best.
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


WIDEST = 2.0
"""Largest ratio of the best rate to the rates tried beside it, below 3 and above sqrt 3."""
LOWEST, HIGHEST = 1e-6, 1.0
"""Limits of the rates in an open grid. Trainings diverge far below the upper one."""


@dataclass(frozen=True)
class Tuning:
    """Learning rates for a run, and the outcome of the tuning runs so far."""

    grid: tuple[float, ...]
    """Learning rates to begin with, ascending."""
    seeds: tuple[int, ...]
    steps: int
    """Steps of each tuning run."""
    runs: tuple[TuningRun, ...] = ()
    """Runs ordered by rate, then seed; empty before the tuning."""
    chosen: float | None = None
    """Learning rate with the lowest loss; None before the tuning."""
    open: bool = False
    """Whether the grid goes on until its best rate lies inside."""

    def ended(self, runs: Sequence[TuningRun]) -> Tuning:
        """Copy with these finished runs and the rate that they choose."""
        done = replace(self, runs=tuple(sorted(runs, key=lambda run: (run.lr, run.seed))))
        return replace(done, chosen=done.best)

    @property
    def tried(self) -> tuple[float, ...]:
        """Learning rates of the finished runs, ascending."""
        return tuple(sorted({run.lr for run in self.runs}))

    @property
    def further(self) -> tuple[float, ...]:
        """Learning rates to try next, ascending; empty after the tuning.

        >>> grid = Tuning((0.01, 0.03), (0,), 9, open=True)
        >>> grid.further
        (0.01, 0.03)
        >>> inner = grid.ended([TuningRun(lr, 0, (loss,), None, 1, False) for lr, loss in ((0.01, 2.0), (0.03, 1.0))])
        >>> inner.further
        (0.09,)
        >>> inner.ended([*inner.runs, TuningRun(0.09, 0, (3.0,), None, 1, False)]).further
        (0.0173, 0.052)
        """
        if not self.runs:
            return self.grid
        if not self.open:
            return ()
        tried, best = self.tried, self.best
        place = tried.index(best)
        if place == 0 or place == len(tried) - 1:
            further = [best * factor for factor, end in ((1 / 3, place == 0), (3, place == len(tried) - 1)) if end]
        else:
            around = ((3**-0.5, best / tried[place - 1]), (3**0.5, tried[place + 1] / best))
            further = [best * factor for factor, ratio in around if ratio > WIDEST]
        return tuple(float(f"{lr:.3g}") for lr in further if LOWEST <= lr <= HIGHEST)

    def is_whole(self) -> bool:
        """Whether the runs are those of the rule, from the grid on: every tried rate was due, and no further one is."""
        so_far = replace(self, runs=(), chosen=None)
        while further := so_far.further:
            due = [run for run in self.runs if run.lr in further]
            if [(run.lr, run.seed) for run in due] != [(lr, seed) for lr in further for seed in self.seeds]:
                return False
            so_far = so_far.ended([*so_far.runs, *due])
        return so_far.runs == self.runs

    def loss(self, lr: float) -> float:
        """Mean loss over the seeds; infinite if any training diverged."""
        losses = [run.loss for run in self.runs if run.lr == lr]
        return math.fsum(losses) / len(losses)  # exact in any order

    @property
    def best(self) -> float:
        """Learning rate with the lowest loss; ties, including 'all diverged', go to the smallest rate."""
        return min(self.tried, key=lambda lr: (self.loss(lr), lr))


def rates(lr: float, factors: Sequence[float]) -> tuple[float, ...]:
    """Learning rates of a grid, ascending, rounded to three digits.

    >>> rates(0.003, (1 / 3, 1, 3)), rates(0.002, (3, 1))
    ((0.001, 0.003, 0.009), (0.002, 0.006))
    """
    return tuple(sorted({float(f"{lr * factor:.3g}") for factor in factors}))  # else 0.003 / 3 is not 0.001, and another run


def ends_of_parts(steps: int, parts: int = TENTHS) -> list[int]:
    """Last step of each of the equal parts of a training; by default, of each tenth.

    >>> ends_of_parts(25), ends_of_parts(3)
    ([2, 5, 8, 10, 12, 15, 18, 20, 22, 25], [1, 2, 3])
    """
    return sorted({max(1, round(steps * (i + 1) / parts)) for i in range(parts)})


def coarse(points: Sequence[tuple[int, float, int]], steps: int) -> tuple[float | None, ...]:
    """Mean loss of each tenth of a training, from points of a training curve: last step, mean loss, number of steps.

    >>> coarse([(1, 4.0, 1), (2, 2.0, 1), (4, 1.0, 2)], 4)[-1]
    1.0
    """
    found: list[float | None] = []
    before = 0
    for mark in ends_of_parts(steps):
        own = [(loss, n) for step, loss, n in points if before < step <= mark]
        if own:
            mean = math.fsum(loss * n for loss, n in own) / sum(n for _, n in own)
            found.append(mean if math.isfinite(mean) else None)
        before = mark
    return tuple(found)
