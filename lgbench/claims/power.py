"""How many seeds would decide a test, if differences go on as they are."""

from __future__ import annotations

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
    if spread == 0:
        return MIN_PAIRED_SEEDS
    counts = np.arange(MIN_PAIRED_SEEDS, MAX_SEEDS + 1)
    critical = stdtrit(counts - 1, 1 - (1 - CONFIDENCE) / tests / 2)
    # Farther out the power is above 0.95 for any number of seeds, and the distribution is not computed soundly.
    shift = np.minimum(abs(mean) / spread * np.sqrt(counts), 2 * critical + 10)
    enough = nctdtr(counts - 1, shift, critical) <= 1 - POWER
    return int(counts[enough][0]) if enough.any() else None
