"""Statistics of a few seeds: 95 % intervals of means, shares and scores over families; paired t-tests, tiers, rank intervals.

All are pure functions of arrays, with seeds on the last axis and NaN for missing seeds.

Scores over families follow Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice" (arXiv
2108.13264). A stratum is a family: one score for each seed, lower is better. All strata have equal weight, whatever their
number of seeds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, nctdtr, ndtr, stdtr, stdtrit

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
MIN_BOOTSTRAP_SEEDS = 8
"""Minimum of seeds for a bootstrap. Means of resamples lie between the extremes; the true mean does in 94 % of cases with five
seeds, and in 99 % with eight."""


def interval(values: Floats) -> tuple[Floats, Floats]:
    """95 % confidence interval of the mean over seeds: (..., n) -> lower and upper end (...), NaN for fewer than two seeds.

    From eight seeds on: the percentile interval of a bootstrap over seeds, expanded against its bias for small n (Hesterberg
    2014, arXiv 1411.5279). Below eight: Student's t interval.
    """
    rows = values.reshape(-1, values.shape[-1])
    counts = np.isfinite(rows).sum(-1)
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for n in np.unique(counts[counts >= 2]):
        chosen = counts == n
        known = np.sort(rows[chosen], -1)[:, :n]  # NaN sorts last
        ends = _bootstrap if n >= MIN_BOOTSTRAP_SEEDS else _student
        low[chosen], high[chosen] = ends(known)
    return low.reshape(values.shape[:-1]), high.reshape(values.shape[:-1])


def share_interval(count: int, n: int) -> tuple[Floats, Floats]:
    """95 % confidence interval of a share, `count` of `n` seeds: lower and upper end, (), NaN for fewer than two seeds.

    The interval of a mean would be [0, 0] if none of a few seeds diverged, although the next seed may diverge.
    """
    return _exact(np.array(count), np.array(n)) if n > 1 else (np.array(np.nan), np.array(np.nan))


def _exact(count: NDArray[Any], n: NDArray[Any]) -> tuple[Floats, Floats]:
    """Exact 95 % interval of a share (Clopper and Pearson 1934), from a count, or a mean count, of n."""
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(count > 0, betaincinv(count, n - count + 1, tail), 0.0)
        high = np.where(count < n, betaincinv(count + 1, n - count, 1 - tail), 1.0)
    return low, high


def expanded_tail(n: int) -> float:
    """Share of resamples of n values outside each end of a 95 % interval (Hesterberg 2014, arXiv 1411.5279).

    The normal tail at the reach of Student's t, corrected for the bias of the standard deviation.
    """
    return float(ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + CONFIDENCE) / 2)))


def _student(values: Floats) -> tuple[Floats, Floats]:
    n = values.shape[-1]
    reach = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * values.std(-1, ddof=1) / np.sqrt(n)
    return values.mean(-1) - reach, values.mean(-1) + reach


def _bootstrap(values: Floats) -> tuple[Floats, Floats]:
    """Bootstrap interval of each row of (rows, n); rows are sorted, so the order of the seeds has no effect."""
    n = values.shape[-1]
    # A fixed seed: equal tables have equal intervals.
    shares = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    tail = expanded_tail(n)
    low, high = np.quantile(values @ shares.T, [tail, 1 - tail], axis=-1)
    return low, high


def effective_length(lengths: Sequence[int], reached: Sequence[bool]) -> int:
    """Longest length up to which every mean passes the threshold; 0 if the first mean fails.

    >>> effective_length([8, 16, 32, 64], [True, True, False, True])
    16
    """
    longest = 0
    for length, good in zip(lengths, reached, strict=True):
        if not good:
            break
        longest = length
    return longest


Strata = Sequence[Floats]
"""Scores (..., seeds) of each family; the number of seeds may differ between families."""


def interquartile_mean(strata: Strata) -> Floats:
    """Interquartile mean of all scores: (...), the mean without the best and the worst quarter.

    Scores at the ends of the middle half count in part if the number of scores is no multiple of four.
    """
    scores, weights = _joined(strata)
    order = np.argsort(scores, -1)
    upper = np.cumsum(weights[order], -1)
    inside = np.clip(upper, 0.25, 0.75) - np.clip(upper - weights[order], 0.25, 0.75)
    found: Floats = 2 * (np.take_along_axis(scores, order, -1) * inside).sum(-1)
    return found


def profile(strata: Strata, limits: Floats) -> Floats:
    """Performance profile: the share of scores at or below each limit, (..., limits)."""
    scores, weights = _joined(strata)
    found: Floats = ((scores[..., None, :] <= limits[:, None]) * weights).sum(-1)
    return found


def improvement(strata: Strata, others: Strata) -> tuple[float, float, float]:
    """Probability of improvement with its 95 % interval: a run scores lower than a run of `others`, mean over families.

    Ties count half. A family has the exact interval of a share of the smaller number of runs, because no pair of runs
    tells more than its runs. The families together have the interval of a sum of independent estimates (Zou and Donner 2008).
    Unlike a bootstrap it keeps its width where every run of one entry is better.
    """
    pairs = [(own[:, None], other) for own, other in zip(strata, others, strict=True)]
    shares = np.array([((own < other) + (own == other) / 2).mean() for own, other in pairs])
    runs = np.array([min(own.size, other.size) for own, other in pairs])
    low, high = _exact(shares * runs, runs)
    mean = float(shares.mean())
    below, above = (float(np.sqrt(((end - shares) ** 2).sum())) / len(shares) for end in (low, high))
    return mean, mean - below, mean + above


def stratified_mean(strata: Strata) -> Floats:
    """Mean of the means of all families, (...)."""
    scores, weights = _joined(strata)
    found: Floats = scores @ weights
    return found


def resampled(strata: Strata, key: int = 0) -> list[Floats]:
    """Stratified bootstrap: each stratum (seeds,) resampled with replacement, (RESAMPLES, seeds) each.

    Equal keys give equal draws; compared entries need different keys.
    """
    draws = np.random.default_rng(key)
    return [own[draws.integers(0, len(own), (RESAMPLES, len(own)))] for own in strata]


def stratified_interval(draws: Floats, strata: Strata) -> tuple[float, float]:
    """95 % interval of a statistic of strata, from its values `draws` on their resamples.

    The percentile interval, expanded as for means: resamples of n values have (n - 1) / n of the right variance, and few seeds
    need Student's t. NaN if a stratum has one seed.
    """
    sizes = np.array([own.shape[-1] for own in strata])
    if sizes.min() < 2:
        return float("nan"), float("nan")
    reach = np.sqrt(np.mean(sizes / (sizes - 1))) * stdtrit((sizes - 1).sum(), (1 + CONFIDENCE) / 2)
    low, high = np.quantile(draws, [ndtr(-reach), ndtr(reach)])
    return float(low), float(high)


def _joined(strata: Strata) -> tuple[Floats, Floats]:
    """All scores (..., n) and their weights (n,), with sum 1."""
    weights = np.concatenate([np.full(own.shape[-1], 1 / own.shape[-1]) for own in strata]) / len(strata)
    return np.concatenate(list(strata), -1), weights


@dataclass(frozen=True)
class Exponent:
    """Mean exponent over n seeds or heads, and its 95 % interval, None for n = 1."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        """Label of a legend, such as "N^-0.49 [-0.52, -0.46]"."""
        ends = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"N^{self.mean:.2f}{ends}"


def exponents(lengths: Floats, values: Floats) -> Floats:
    """Slopes (S,) of log values (L, S) over log lengths (L,), by least squares; NaN for values not above 0, or a single row."""
    if len(values) < 2:
        return np.full(values.shape[1], np.nan)
    known = np.where(values > 0, values, np.nan)
    x = np.log(lengths) - np.log(lengths).mean()
    slopes: Floats = x @ np.log(known) / (x @ x)
    return slopes


def mean_exponent(lengths: Floats, values: Floats) -> Exponent | None:
    """Mean exponent over the columns of values (L, S) at lengths (L,); None without a fit for any column."""
    found = exponents(lengths, values)
    n = int(np.isfinite(found).sum())
    if not n:
        return None
    low, high = (end.item() for end in interval(found[None]))
    return Exponent(float(np.nanmean(found)), low if n > 1 else None, high if n > 1 else None, n)


MIN_PAIRED_SEEDS = 3
"""Minimum of common seeds for a test: with fewer, differences of rounded shares can be equal by chance."""

SURE = 0.001
"""Upper limit of p, not corrected, for a board to call one entry better than another: 0.05 for 50 comparisons of an entry with
others. The limit is the same for every board, because a limit that falls with the number of entries would promote an entry when
another is added."""


class TTest(NamedTuple):
    """Paired t-test of each mean difference against zero: arrays of one shape.

    With fewer than MIN_PAIRED_SEEDS seeds p is 1 and the interval NaN. The variance is NaN below two seeds.
    """

    seeds: NDArray[np.intp]
    mean: Floats
    variance: Floats
    p: Floats
    """Two-sided, not corrected. p is below 0.05 exactly where the interval excludes zero."""
    low: Floats
    """Ends of the 95 % interval of the mean."""
    high: Floats


def paired_t(differences: Floats) -> TTest:
    """Paired t-test of differences (..., seeds), with NaN for missing seeds; p is 1 for entries with equal values."""
    known = np.isfinite(differences)
    seeds = known.sum(-1)
    mean = np.where(known, differences, 0).sum(-1) / np.maximum(seeds, 1)
    squares = (np.where(known, differences - mean[..., None], 0) ** 2).sum(-1)
    variance = np.where(seeds >= 2, squares / np.maximum(seeds - 1, 1), np.nan)
    enough = seeds >= MIN_PAIRED_SEEDS
    free, error = np.where(enough, seeds - 1, 1), np.sqrt(variance / np.maximum(seeds, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(mean) / error  # 0 / 0 where entries agree on every seed
    p = np.where(enough, 2 * stdtr(free, -np.nan_to_num(t, nan=0.0, posinf=np.inf)), 1.0)
    reach = np.where(enough, stdtrit(free, (1 + CONFIDENCE) / 2) * error, np.nan)
    return TTest(seeds, np.where(seeds > 0, mean, np.nan), variance, p, mean - reach, mean + reach)


def holm(p: Floats) -> Floats:
    """p-values (m,) corrected for multiple tests (Holm 1979).

    At 0.05, at most one family of tests in twenty has a false positive.
    """
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1)
    return corrected


def deciding_seeds(
    differences: Sequence[Floats], failing: Sequence[NDArray[np.bool_]], seeds: Sequence[Sequence[int]]
) -> list[tuple[int, ...]]:
    """For each difference (seeds,), the failing seeds whose removal, one at a time, changes its verdict.

    Verdicts are corrected for all differences (Holm). `failing` marks the seeds of a difference that one of the two entries
    has not fitted. None where removing a fitted seed changes the verdict, too: it is close to the limit.
    """
    tests = [paired_t(own) for own in differences]
    tested = np.array([test.p for test in tests])
    found: list[tuple[int, ...]] = []
    for i, (own, failed) in enumerate(zip(differences, failing, strict=True)):
        known = np.isfinite(own)
        lost = failed & known
        turning: list[int] = []
        if lost.any() and not lost[known].all():
            without = paired_t(np.where(np.eye(len(own), dtype=bool), np.nan, own))  # of each seed
            for seed in np.flatnonzero(known):
                p = np.where(np.arange(len(tested)) == i, without.p[seed], tested)
                if _verdict(p, without.mean[seed], i) != _verdict(tested, tests[i].mean.item(), i):
                    turning.append(int(seed))
        found.append(tuple(seeds[i][place] for place in turning) if lost[turning].all() else ())
    return found


def _verdict(p: Floats, mean: float, i: int) -> float:
    """Sign of difference i, 0 without significance."""
    return float(np.sign(mean)) if holm(p)[i] < 1 - CONFIDENCE else 0.0


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
    """Smallest number of seeds for a power of 80 %; None above MOST_SEEDS, and for a difference of 0."""
    if difference == 0:
        return None
    if variance == 0:
        return MIN_PAIRED_SEEDS
    if power(MOST_SEEDS, difference, variance, alpha) < POWER:
        return None
    enough = range(MIN_PAIRED_SEEDS, MOST_SEEDS)  # power grows with seeds
    return MIN_PAIRED_SEEDS + bisect_left(enough, POWER, key=lambda seeds: power(seeds, difference, variance, alpha))


class Standing(NamedTuple):
    """Tier, from 1, and rank interval of an entry."""

    tier: int
    best_rank: int
    """Best rank of the rank interval."""
    worst_rank: int
    better_than: tuple[int, ...]
    """Indices of worse entries."""


def standings(values: Floats, eligible: NDArray[np.bool_]) -> list[Standing]:
    """Standings of entries (E, seeds) in the order of their means, lowest and best first.

    The rank interval of an entry holds its true rank in 95 % of cases, for up to 51 entries (Bonferroni; Mogstad et al. 2024).
    An entry of best rank 1 may be the best, as in Hsu (1984), without the assumption of equal variances. Entries that are not
    eligible are never in the first tier.
    """
    better = _better(values)
    tiers = _tiers(better, eligible)
    above, below = better.sum(0).tolist(), better.sum(1).tolist()
    return [
        Standing(tiers[i], above[i] + 1, len(values) - below[i], tuple(np.flatnonzero(better[i]).tolist()))
        for i in range(len(values))
    ]


def _better(values: Floats) -> NDArray[np.bool_]:
    """(E, E): whether entry i is better than entry j, on their common seeds and in the order of all means."""
    first, second = np.triu_indices(len(values), 1)
    better = np.zeros((len(values), len(values)), dtype=bool)
    found = paired_t(values[first] - values[second])
    better[first, second] = (found.p < SURE) & (np.nan_to_num(found.mean) < 0)
    return better


def _tiers(better: NDArray[np.bool_], eligible: NDArray[np.bool_]) -> list[int]:
    """Tier of each entry: at least those of the eligible entries before, and above the tiers of all better entries.

    An added entry never lowers the tier number of another: it can only be better than others, and stand before others.
    """
    tiers: list[int] = []
    reached = 1
    for own, fit in zip(better.T, eligible, strict=True):
        reached = max(reached, 1 + max((tiers[i] for i in np.flatnonzero(own)), default=0))
        tiers.append(reached if fit else max(reached, 2))
    return tiers
