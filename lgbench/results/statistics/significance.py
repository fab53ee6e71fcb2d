"""Significance of differences between entries: the moderated t-test, seeds needed, tiers and rank intervals.

The moderated t-test (Smyth 2004; package limma) is a paired t-test with a variance prior. Five seeds give a difference four
degrees of freedom, so the sample variance of a single pair is a poor estimate. All pairs of a board together estimate the
typical variance and its scatter. The variance of each pair shrinks towards the typical one, further for more similar variances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import digamma, nctdtr, polygamma, stdtr, stdtrit

from lgbench.results.statistics.intervals import CONFIDENCE, Floats, in_parts

MIN_PAIRED_SEEDS = 3
"""Minimum of common seeds for a test: with fewer, differences of rounded shares can be equal by chance."""

MIN_PAIRS = 3
"""Minimum of pairs for a variance prior; with fewer, each pair keeps its sample variance."""

LEAST = 1e-5
"""Lower bound of a variance, as a share of the median. Entries with equal values on every seed have variance 0, without a
logarithm."""


class Moments(NamedTuple):
    """Differences between entries over common seeds: arrays of one shape. Variances are NaN below two seeds."""

    seeds: NDArray[np.intp]
    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, differences: Floats) -> Moments:
        """Moments of differences (..., seeds), with NaN for missing seeds."""
        known = np.isfinite(differences)
        seeds = known.sum(-1)
        mean = np.where(known, differences, 0).sum(-1) / np.maximum(seeds, 1)
        squares = (np.where(known, differences - mean[..., None], 0) ** 2).sum(-1)
        variance = np.where(seeds >= 2, squares / np.maximum(seeds - 1, 1), np.nan)
        return cls(seeds, np.where(seeds > 0, mean, np.nan), variance)


class Pairs(NamedTuple):
    """All pairs of entries of a board, by index, the earlier entry first, with the moments of first - second."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    moments: Moments

    @classmethod
    def of(cls, values: Floats) -> Pairs:
        """Pairs of entries (E, seeds)."""
        first, second = np.triu_indices(len(values), 1)
        parts = [Moments.of(values[i] - values[j]) for i, j in zip(in_parts(first), in_parts(second), strict=True)]
        return cls(first, second, Moments(*(np.concatenate(own) for own in zip(*parts, strict=True))))


class Spread(NamedTuple):
    """The prior of the variance of a difference, estimated from all pairs of a board together."""

    variance: float
    """The typical variance (the scale of the prior, s0 squared)."""
    weight: float
    """Degrees of freedom of the prior (d0): 0 for no prior, infinite for variances that differ no more than by chance."""
    freedom: float
    """Degrees of freedom of all seeds of the board together: the upper limit for every test."""

    def borrowed(self, moments: Moments) -> tuple[Floats, Floats]:
        """Posterior variance of each difference, shrunk towards the typical variance, and its degrees of freedom."""
        own = np.maximum(moments.seeds - 1.0, 0)
        free = np.minimum(own + self.weight, np.maximum(self.freedom, own))
        if np.isinf(self.weight):
            return np.full(own.shape, self.variance), free
        if not self.weight:
            return moments.variance, free
        sums = self.weight * self.variance + own * np.nan_to_num(moments.variance)
        variance: Floats = sums / (self.weight + own)
        return variance, free


ALONE = Spread(np.nan, 0.0, 0.0)
"""No prior: the test is the ordinary paired t-test."""


class TTest(NamedTuple):
    """Two-sided p of the hypothesis of a zero mean difference, not corrected, and the 95 % interval, for each difference.

    p and interval come from one t distribution: the interval excludes zero exactly where p is below 0.05. With fewer than
    MIN_PAIRED_SEEDS seeds p is 1 and the interval NaN.
    """

    p: Floats
    low: Floats
    high: Floats


def spread(values: Floats) -> Spread:
    """Variance prior of the differences between entries (E, seeds), estimated from all pairs together."""
    return spread_of(Pairs.of(values), values)


def spread_of(pairs: Pairs, values: Floats) -> Spread:
    """Variance prior of the differences between entries (E, seeds) from their pairs."""
    known = np.isfinite(values)
    # Residual degrees of freedom after the means of entries and of seeds: n (E - 1) - (E - 1) if all entries have n seeds.
    # Pairs share entries, so the sum of the degrees of freedom of all pairs is many times larger.
    shared = known[:, known.sum(0) >= 2]
    freedom = float(shared.sum() - shared.any(1).sum() - shared.shape[1] + 1)
    enough = pairs.moments.seeds >= MIN_PAIRED_SEEDS
    variance, weight = fitted(pairs.moments.variance[enough], (pairs.moments.seeds[enough] - 1).astype(np.float64))
    return Spread(variance, weight, freedom) if weight else ALONE


def fitted(variances: Floats, freedom: Floats) -> tuple[float, float]:
    """Scale and degrees of freedom of the prior of variances (m,) with degrees of freedom (m,).

    Fitted to the mean and the variance of the logarithms (Smyth 2004, section 6.2; limma's fitFDist). NaN and 0, for no prior,
    with fewer than three variances or a median of zero.
    """
    middle = np.median(variances) if len(variances) >= MIN_PAIRS else 0.0
    if not middle > 0:
        return float("nan"), 0.0
    logs = np.log(np.maximum(variances, LEAST * middle)) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = logs.var(ddof=1) - polygamma(1, freedom / 2).mean()
    if excess <= 0:
        return float(variances.mean()), float("inf")
    half = trigamma_inverse(float(excess))
    return float(np.exp(logs.mean() + digamma(half) - np.log(half))), 2 * half


def trigamma_inverse(value: float) -> float:
    """Solution y > 0 of trigamma(y) = value > 0, by Newton's method on 1 / trigamma, nearly a line (Smyth 2004, appendix).

    >>> round(trigamma_inverse(5.0), 7)
    0.4961687
    """
    if value > 1e7:
        return float(value**-0.5)
    if value < 1e-6:
        return 1 / value
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = polygamma(1, y)
        step = trigamma * (1 - trigamma / value) / polygamma(2, y)
        y += step
        if -step / y < 1e-10:
            break
    return float(y)


def moderated_t(moments: Moments, spread: Spread = ALONE) -> TTest:
    """Moderated t-test of each difference; p is 1 for entries with equal values on every seed."""
    variance, free = spread.borrowed(moments)
    enough = moments.seeds >= MIN_PAIRED_SEEDS
    free = np.where(enough, free, 1)
    error = np.sqrt(variance / np.maximum(moments.seeds, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(moments.mean) / error  # 0 / 0 where entries agree on every seed and nothing is borrowed
    p = 2 * stdtr(free, -np.nan_to_num(t, nan=0.0, posinf=np.inf))
    reach = np.where(enough, stdtrit(free, (1 + CONFIDENCE) / 2) * error, np.nan)
    return TTest(np.where(enough, p, 1.0), moments.mean - reach, moments.mean + reach)


def holm(p: Floats) -> Floats:
    """p-values (m,) corrected for multiple tests (Holm 1979).

    At 0.05, at most one family of tests in twenty has a false positive.
    """
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1)
    return corrected


POWER = 0.8
"""Share of experiments in which the difference is significant."""

MOST_SEEDS = 10_000
"""Upper limit of the search for the number of seeds."""


def power(seeds: int, difference: float, variance: float, alpha: float = 1 - CONFIDENCE) -> float:
    """Power of a two-sided paired t-test over `seeds` seeds, for differences with a given mean and variance."""
    free, effect = seeds - 1, abs(difference) * np.sqrt(seeds / variance)
    limit = stdtrit(free, 1 - alpha / 2)
    below, above = nctdtr(free, effect, -limit), 1 - nctdtr(free, effect, limit)
    return float(np.nan_to_num(below) + np.nan_to_num(above, nan=1.0))  # SciPy has NaN for huge effects


def seeds_needed(difference: float, variance: float, alpha: float = 1 - CONFIDENCE) -> int | None:
    """Smallest number of seeds for a power of 80 %; None above MOST_SEEDS."""
    if variance == 0:
        return MIN_PAIRED_SEEDS
    if difference == 0 or power(MOST_SEEDS, difference, variance, alpha) < POWER:
        return None
    low, high = MIN_PAIRED_SEEDS - 1, MOST_SEEDS  # power grows with seeds: too few, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, difference, variance, alpha) >= POWER else (middle, high)
    return high


Relation = NDArray[np.bool_]
"""(E, E): whether entry i is significantly better than entry j."""


class Standing(NamedTuple):
    """Tier, from 1, and rank interval of an entry."""

    tier: int
    best_rank: int
    """Best rank of the rank interval."""
    worst_rank: int
    better_than: tuple[int, ...]
    """Indices of significantly worse entries."""


def standings(values: Floats) -> list[Standing]:
    """Standings of entries (E, seeds). A lower mean is better.

    Every pair is tested, paired by seed, and all pairs are corrected together (Holm). The rank interval follows from the
    numbers of significantly better and worse entries (rank confidence sets: Mogstad et al. 2024), the tier from
    :func:`layers`.
    """
    better = without_circles(significantly_better(values))
    above, below = better.sum(0), better.sum(1)
    return [
        Standing(tier, int(above[i]) + 1, len(values) - int(below[i]), tuple(np.flatnonzero(better[i]).tolist()))
        for i, tier in enumerate(layers(better))
    ]


def significantly_better(values: Floats) -> Relation:
    """Significant differences between entries (E, seeds); a lower mean is better."""
    pairs = Pairs.of(values)
    real = holm(moderated_t(pairs.moments, spread_of(pairs, values)).p) < 1 - CONFIDENCE
    lower = np.nan_to_num(pairs.moments.mean) < 0
    better = np.zeros((len(values), len(values)), dtype=bool)
    better[pairs.first, pairs.second] = real & lower
    better[pairs.second, pairs.first] = real & ~lower
    return better


def without_circles(better: Relation) -> Relation:
    """The relation without circles: entries of a circle are not significantly different from each other.

    Circles appear only between entries with different seeds: pairs are then compared on different seeds, and a may be better
    than b, b than c, and c than a. Differences to entries outside the circle stay.
    """
    _, circle = connected_components(better, connection="strong")
    found: Relation = better & (circle[:, None] != circle)
    return found


def layers(better: Relation) -> list[int]:
    """Tier of each entry: one more than the largest tier number among all better entries, 1 without better entries.

    The relation has no circle. No entry is better than another entry of its tier. An entry without significant differences
    changes no other tier.
    """
    tiers = np.ones(len(better), dtype=int)
    left = np.ones(len(better), dtype=bool)
    tier = 0
    while left.any():
        tier += 1
        first = left & ~better[left].any(0)  # no remaining entry is better
        assert first.any(), "a circle"
        tiers[first] = tier
        left &= ~first
    return [int(tier) for tier in tiers]
