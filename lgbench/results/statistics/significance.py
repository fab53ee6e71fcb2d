"""Significance of differences between entries: the paired t-test, seeds needed, tiers and rank intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtr, stdtr, stdtrit

from lgbench.results.statistics.intervals import CONFIDENCE, Floats, in_parts

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


def deciding_seeds(differences: Floats, failing: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """Places of failing seeds that make the verdict on each difference (m, seeds): without one of them it is another.

    Verdicts are corrected for all m differences (Holm). `failing` marks seeds (m, seeds) that one of the two entries has not
    fitted. Where the verdict turns on a fitted seed too, it is close to the limit, and no failing seed makes it.
    """
    tested, left_out = paired_t(differences), np.eye(differences.shape[-1], dtype=bool)
    found: list[tuple[int, ...]] = []
    known = np.isfinite(differences)
    for i, (own, lost) in enumerate(zip(known, failing & known, strict=True)):
        turning: list[int] = []
        if lost.any() and not lost[own].all():
            without = paired_t(np.where(left_out, np.nan, differences[i]))  # of each seed
            for seed in np.flatnonzero(own):
                p = np.where(np.arange(len(known)) == i, without.p[seed], tested.p)
                if _verdict(p, without.mean[seed], i) != _verdict(tested.p, tested.mean[i], i):
                    turning.append(int(seed))
        found.append(tuple(turning) if lost[turning].all() else ())
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
    So the entries of best rank 1 are those that may be the best (Hsu 1984), for pairs of unequal variances. Entries that are
    not eligible are never in the first tier.
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
    for i, j in zip(in_parts(first), in_parts(second), strict=True):
        found = paired_t(values[i] - values[j])
        better[i, j] = (found.p < SURE) & (np.nan_to_num(found.mean) < 0)
    return better


def _tiers(better: NDArray[np.bool_], eligible: NDArray[np.bool_]) -> list[int]:
    """Tier of each entry: at least that of the entries before, and above the tiers of all better entries.

    An added entry never lowers the tier number of another: it can only be better than others, and stand before others.
    """
    tiers: list[int] = []
    reached = 1
    for own, fit in zip(better.T, eligible, strict=True):
        reached = max(reached, 1 + max((tiers[i] for i in np.flatnonzero(own)), default=0))
        tiers.append(reached if fit else max(reached, 2))
    return tiers
