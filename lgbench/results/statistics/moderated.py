"""The moderated t-test (Smyth 2004): a paired t-test that also knows how much the other pairs of a board scatter.

Five seeds give a difference four degrees of freedom, so its own variance is a poor guess. All pairs of a board together say how
large such variances are and how much they differ from each other. Each pair's variance is drawn towards that, as in the package
limma: the more alike the variances are, the further.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma, stdtr, stdtrit

from lgbench.results.statistics.intervals import CONFIDENCE, Floats, in_parts

MIN_PAIRED_SEEDS = 3
"""With fewer common seeds no difference is significant: differences of rounded shares can then be equal by chance."""

MIN_PAIRS = 3
"""Fewer pairs with a variance say nothing about how variances differ. Then every pair has its own variance alone."""

LEAST = 1e-5
"""Where two entries agree on every seed their variance is 0, which has no logarithm. It counts as this share of the median."""


class Moments(NamedTuple):
    """Differences between entries over the seeds that both have: arrays of one shape. Variances are NaN below two seeds."""

    seeds: NDArray[np.intp]
    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, differences: Floats) -> Moments:
        """Of differences (..., seeds), NaN where an entry lacks the seed."""
        known = np.isfinite(differences)
        seeds = known.sum(-1)
        mean = np.where(known, differences, 0).sum(-1) / np.maximum(seeds, 1)
        squares = (np.where(known, differences - mean[..., None], 0) ** 2).sum(-1)
        variance = np.where(seeds >= 2, squares / np.maximum(seeds - 1, 1), np.nan)
        return cls(seeds, np.where(seeds > 0, mean, np.nan), variance)


class Pairs(NamedTuple):
    """Every pair of the entries of a board, by index, the earlier entry first, with the moments of first - second."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    moments: Moments

    @classmethod
    def of(cls, values: Floats) -> Pairs:
        """Of entries (E, seeds)."""
        first, second = np.triu_indices(len(values), 1)
        parts = [Moments.of(values[i] - values[j]) for i, j in zip(in_parts(first), in_parts(second), strict=True)]
        return cls(first, second, Moments(*(np.concatenate(own) for own in zip(*parts, strict=True))))


class Spread(NamedTuple):
    """The prior of the variance of a difference, estimated from all pairs of a board together."""

    variance: float
    """The typical variance (the scale of the prior, s0 squared)."""
    weight: float
    """How many degrees of freedom the typical variance counts beside a pair's own (d0): 0 where nothing is borrowed, infinite
    where the variances differ no more than chance makes them differ."""
    freedom: float
    """The degrees of freedom of all seeds of the board together, which no test has more of."""

    def borrowed(self, moments: Moments) -> tuple[Floats, Floats]:
        """The variance of each difference, drawn towards the typical one, and its degrees of freedom."""
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
"""Nothing is borrowed: the test is the ordinary paired t-test."""


class Verdict(NamedTuple):
    """Of each difference: the two-sided p that the mean difference is zero, not corrected, and its 95 % interval.

    Both come from one t distribution: the interval leaves out zero exactly where p is below 0.05. With fewer than
    MIN_PAIRED_SEEDS seeds p is 1 and the interval NaN.
    """

    p: Floats
    low: Floats
    high: Floats


def spread(values: Floats) -> Spread:
    """The spread of entries (E, seeds), estimated from all pairs together."""
    return spread_of(Pairs.of(values), values)


def spread_of(pairs: Pairs, values: Floats) -> Spread:
    """The same, of entries (E, seeds) whose pairs are known."""
    known = np.isfinite(values)
    # The degrees of freedom that are left after the means of entries and seeds: n (E - 1) - (E - 1) where all entries have n
    # seeds. Pairs share entries, so the sum of their own degrees of freedom is many times larger than this.
    shared = known[:, known.sum(0) >= 2]
    freedom = float(shared.sum() - shared.any(1).sum() - shared.shape[1] + 1)
    enough = pairs.moments.seeds >= MIN_PAIRED_SEEDS
    variance, weight = fitted(pairs.moments.variance[enough], (pairs.moments.seeds[enough] - 1).astype(np.float64))
    return Spread(variance, weight, freedom) if weight else ALONE


def fitted(variances: Floats, freedom: Floats) -> tuple[float, float]:
    """The scale and the degrees of freedom of a prior of variances (m,), each with its own degrees of freedom (m,).

    The mean and the variance of the logarithms decide (Smyth 2004, section 6.2; limma's fitFDist). Nothing is borrowed (NaN and
    0) where there are fewer than three variances, or half of them are zero.
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
    """The y > 0 with trigamma(y) = value > 0, by Newton's method on 1 / trigamma, nearly a line (Smyth 2004, appendix).

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


def moderated_t(moments: Moments, spread: Spread = ALONE) -> Verdict:
    """The moderated t-test of each difference. Where entries agree on every seed, p is 1."""
    variance, free = spread.borrowed(moments)
    enough = moments.seeds >= MIN_PAIRED_SEEDS
    free = np.where(enough, free, 1)
    error = np.sqrt(variance / np.maximum(moments.seeds, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(moments.mean) / error  # 0 / 0 where entries agree on every seed and nothing is borrowed
    p = 2 * stdtr(free, -np.nan_to_num(t, nan=0.0, posinf=np.inf))
    reach = np.where(enough, stdtrit(free, (1 + CONFIDENCE) / 2) * error, np.nan)
    return Verdict(np.where(enough, p, 1.0), moments.mean - reach, moments.mean + reach)


def holm(p: Floats) -> Floats:
    """p-values corrected for their number (Holm 1979), (m,): at 0.05, one family in twenty has a false positive at most."""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1)
    return corrected
