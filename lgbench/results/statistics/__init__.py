"""Statistics of a handful of seeds: pure functions of arrays, with seeds on the last axis and NaN where one is missing."""

from lgbench.results.statistics.effective import effective_length
from lgbench.results.statistics.intervals import (
    CONFIDENCE,
    MIN_BOOTSTRAP_SEEDS,
    RESAMPLES,
    Floats,
    expanded_tail,
    interval,
    share_interval,
)
from lgbench.results.statistics.moderated import ALONE, MIN_PAIRED_SEEDS, Moments, Spread, Verdict, holm, moderated_t, spread
from lgbench.results.statistics.overall import improvement, interquartile_mean, profile, resampled, stratified_interval
from lgbench.results.statistics.power import MOST_SEEDS, POWER, power, seeds_needed
from lgbench.results.statistics.tiers import Standing, layers, standings

__all__ = [
    "ALONE",
    "CONFIDENCE",
    "MIN_BOOTSTRAP_SEEDS",
    "MIN_PAIRED_SEEDS",
    "MOST_SEEDS",
    "POWER",
    "RESAMPLES",
    "Floats",
    "Moments",
    "Spread",
    "Standing",
    "Verdict",
    "effective_length",
    "expanded_tail",
    "holm",
    "improvement",
    "interquartile_mean",
    "interval",
    "layers",
    "power",
    "profile",
    "resampled",
    "seeds_needed",
    "share_interval",
    "spread",
    "standings",
    "stratified_interval",
    "moderated_t",
]
