"""How many seeds a paired t-test needs to find a difference."""

from __future__ import annotations

import numpy as np
from scipy.special import nctdtr, stdtrit

from lgbench.results.statistics.intervals import CONFIDENCE
from lgbench.results.statistics.moderated import MIN_PAIRED_SEEDS

POWER = 0.8
"""The share of experiments with so many seeds that find the difference."""

MOST_SEEDS = 10_000
"""More are not counted."""


def power(seeds: int, difference: float, variance: float, alpha: float = 1 - CONFIDENCE) -> float:
    """How often a two-sided paired t-test over so many seeds is significant, where differences have this mean and variance."""
    free, effect = seeds - 1, abs(difference) * np.sqrt(seeds / variance)
    limit = stdtrit(free, 1 - alpha / 2)
    below, above = nctdtr(free, effect, -limit), 1 - nctdtr(free, effect, limit)
    return float(np.nan_to_num(below) + np.nan_to_num(above, nan=1.0))  # it has no value where effects are huge


def seeds_needed(difference: float, variance: float, alpha: float = 1 - CONFIDENCE) -> int | None:
    """The fewest seeds with which the test has a power of 80 %, None where those are too many to count."""
    if variance == 0:
        return MIN_PAIRED_SEEDS
    if difference == 0 or power(MOST_SEEDS, difference, variance, alpha) < POWER:
        return None
    low, high = MIN_PAIRED_SEEDS - 1, MOST_SEEDS  # power grows with seeds: too few, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, difference, variance, alpha) >= POWER else (middle, high)
    return high
