"""How many seeds would decide a test, if differences go on as they are."""

from __future__ import annotations

from math import sqrt

import numpy as np
from scipy.special import nctdtr, stdtrit

from lgbench.results.statistics import CONFIDENCE, MIN_PAIRED_SEEDS

POWER = 0.8
MAX_SEEDS = 1000
"""Nobody runs more to decide one test."""


def seeds_needed(mean: float, spread: float, tests: int = 1) -> int | None:
    """The seeds with which a paired t-test of a true difference `mean`, with standard deviation `spread`, has 80 % power.

    `tests` are corrected together (as Bonferroni does, which asks for more than Holm). None for more than MAX_SEEDS.
    """
    if mean == 0:
        return None
    counts = np.arange(MIN_PAIRED_SEEDS, MAX_SEEDS + 1)
    if spread == 0:
        return MIN_PAIRED_SEEDS
    critical = stdtrit(counts - 1, 1 - (1 - CONFIDENCE) / tests / 2)
    shift = abs(mean) / spread * np.sqrt(counts)
    missed = nctdtr(counts - 1, np.minimum(shift, _farthest(critical)), critical)
    enough = missed <= 1 - POWER
    return int(counts[enough][0]) if enough.any() else None


def _farthest(critical: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A shift beyond which the power is 1 for every purpose; the distribution is not computed soundly much farther out."""
    return critical + 10 * sqrt(2)
