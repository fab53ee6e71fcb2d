"""One number for several families: the interquartile mean, performance profiles, and the probability of improvement.

All are from Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice" (arXiv 2108.13264). A
stratum is one family: its scores, one for each seed. Strata count alike, however many seeds each of them has. A lower score is
better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, stdtrit

from lgbench.results.statistics.intervals import CONFIDENCE, RESAMPLES, Floats

Strata = Sequence[Floats]
"""Of each family the scores (..., seeds); how many seeds there are may differ from family to family."""


def interquartile_mean(strata: Strata) -> Floats:
    """The mean of the middle half of all scores: (...). The best and the worst quarter do not count.

    Where the number of scores is no multiple of four, the scores at the ends of the middle half count in part.
    """
    scores, weights = _joined(strata)
    order = np.argsort(scores, -1)
    upper = np.cumsum(weights[order], -1)
    inside = np.clip(upper, 0.25, 0.75) - np.clip(upper - weights[order], 0.25, 0.75)
    found: Floats = 2 * (np.take_along_axis(scores, order, -1) * inside).sum(-1)
    return found


def profile(strata: Strata, limits: Floats) -> Floats:
    """The performance profile: the share of scores at or below each limit, (..., limits)."""
    scores, weights = _joined(strata)
    found: Floats = ((scores[..., None, :] <= limits[:, None]) * weights).sum(-1)
    return found


def improvement(strata: Strata, others: Strata) -> Floats:
    """The probability that a run has a lower score than a run of the other on a family, mean over families: (...).

    Runs with equal scores count half.
    """
    shares = []
    for own, other in zip(strata, others, strict=True):
        lower = own[..., :, None] < other[..., None, :]
        equal = own[..., :, None] == other[..., None, :]
        shares.append((lower + equal / 2).mean((-2, -1)))
    found: Floats = np.mean(shares, axis=0)
    return found


def resampled(strata: Strata, key: int = 0) -> list[Floats]:
    """Each stratum (seeds,) resampled on its own, with replacement: (RESAMPLES, seeds) each. The stratified bootstrap.

    A key gives the same draws always; entries that are compared have different ones.
    """
    draws = np.random.default_rng(key)
    return [own[draws.integers(0, len(own), (RESAMPLES, len(own)))] for own in strata]


def stratified_interval(draws: Floats, *samples: Strata) -> tuple[float, float]:
    """The 95 % interval of a number that depends on these samples, from the number's value on each of their resamples.

    The percentile interval, expanded as that of means is: the variance of resamples of n values is (n - 1) / n of what it
    should be, and few seeds ask for Student's t. NaN where a stratum has one seed.
    """
    sizes = np.array([own.shape[-1] for strata in samples for own in strata])
    if sizes.min() < 2:
        return float("nan"), float("nan")
    reach = np.sqrt(np.mean(sizes / (sizes - 1))) * stdtrit((sizes - 1).sum(), (1 + CONFIDENCE) / 2)
    low, high = np.quantile(draws, [ndtr(-reach), ndtr(reach)])
    return float(low), float(high)


def _joined(strata: Strata) -> tuple[Floats, Floats]:
    """All scores (..., n) and the weight of each (n,), one in all."""
    weights = np.concatenate([np.full(own.shape[-1], 1 / own.shape[-1]) for own in strata]) / len(strata)
    return np.concatenate(list(strata), -1), weights
