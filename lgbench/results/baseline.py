"""Every entry of a board against one of them, the baseline: the difference, its interval, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lgbench.results.columns import Models, rounded
from lgbench.results.metrics import Metric
from lgbench.results.statistics import CONFIDENCE, Moments, holm, moderated_t


@dataclass(frozen=True)
class Against:
    """The mean of entry - baseline over the n seeds that both have, in the column that orders entries."""

    difference: float
    low: float | None
    """The ends of its 95 % interval, None with fewer than three seeds."""
    high: float | None
    n: int
    p: float
    """Of the moderated t-test, corrected (Holm) for all entries that are compared with the baseline."""
    verdict: Literal["better", "worse"] | None
    """None where the difference is not significant."""


def against(models: Models, metric: Metric, baseline: str, ranked: Sequence[str]) -> dict[str, Against]:
    """By entry. Those that have no seed in common with the baseline, or are not ranked, are left out; so is the baseline."""
    if baseline not in ranked:
        return {}
    values = models.column(models.ranked_by, ranked)
    differences = values - values[list(ranked).index(baseline)]
    others = np.array([entry != baseline for entry in ranked]) & np.isfinite(differences).any(-1)
    moments = Moments.of(differences[others])
    found = moderated_t(moments, models.spread(models.ranked_by))
    corrected, most = holm(found.p), metric.highest - metric.lowest
    low, high = (np.clip(end, -most, most) for end in (found.low, found.high))
    names = [entry for entry, other in zip(ranked, others, strict=True) if other]
    return {
        entry: Against(
            difference=rounded(moments.mean[i]),
            low=None if np.isnan(low[i]) else rounded(low[i]),
            high=None if np.isnan(high[i]) else rounded(high[i]),
            n=int(moments.seeds[i]),
            p=float(f"{corrected[i]:.3g}"),
            verdict=_verdict(metric.sign * moments.mean[i]) if corrected[i] < 1 - CONFIDENCE else None,
        )
        for i, entry in enumerate(names)
    }


def _verdict(difference: float) -> Literal["better", "worse"]:
    return "better" if difference < 0 else "worse"
