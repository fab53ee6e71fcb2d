"""What a handful of seeds says, and what it does not: pure functions of arrays. Seeds stand last, NaN where one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, stdtr, stdtrit

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
FEWEST_RESAMPLED = 5
"""Fewer seeds have so few resamples (35 of 4) that no bootstrap interval covers what it should."""
MOST_ENUMERATED = 6
"""Seeds whose resamples are all looked at, 456 of 6; with more, 2000 are drawn."""
FEWEST_SEPARATED = 3
"""Fewer common seeds separate nothing: differences of rounded shares can then be equal by chance."""


def interval(values: Floats) -> tuple[Floats, Floats]:
    """95 % confidence interval of the mean over seeds: (..., n) -> lower and upper end (...), NaN for fewer than two seeds.

    From five seeds on the studentized bootstrap (bootstrap-t: Efron and Tibshirani 1993, chapter 12.5), which covers what it
    claims with five seeds where the percentile bootstrap covers 75 to 85 %. Student's t below that, and where so many seeds
    have the same value (three of five) that more resamples than a tail holds are of it alone and say nothing about t.
    """
    rows = values.reshape(-1, values.shape[-1])
    counts = np.isfinite(rows).sum(-1)
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for n in np.unique(counts[counts >= 2]):
        chosen = counts == n
        known = np.sort(rows[chosen], -1)[:, :n]  # NaN sorts last
        ends = _bootstrap_t(known) if n >= FEWEST_RESAMPLED else _student(known)
        low[chosen], high[chosen] = ends
    return low.reshape(values.shape[:-1]), high.reshape(values.shape[:-1])


def _student(values: Floats) -> tuple[Floats, Floats]:
    n = values.shape[-1]
    reach = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * _standard_error(values)
    return values.mean(-1) - reach, values.mean(-1) + reach


def _bootstrap_t(values: Floats) -> tuple[Floats, Floats]:
    """(rows, n): the quantiles of t over resamples stand in for those of Student's t."""
    n = values.shape[-1]
    shares, weights = _resamples(n)
    centered = values - values.mean(-1, keepdims=True)
    largest = np.abs(centered).max(-1, keepdims=True)
    centered = np.divide(centered, largest, out=np.zeros_like(centered), where=largest > 0)
    means = centered @ shares.T  # (rows, resamples)
    errors = np.sqrt(np.maximum(centered**2 @ shares.T - means**2, 0) / (n - 1))
    spread = errors > 1e-6  # resamples of one value alone say nothing about t
    t = np.divide(means, errors, out=np.zeros_like(means), where=spread)
    order = t.argsort(-1)
    below = (spread * weights)[np.arange(len(t))[:, None], order].cumsum(-1)
    error, tail = _standard_error(values), (1 - CONFIDENCE) / 2
    tied = (~spread * weights).sum(-1) > tail
    ends = []
    for share, usual in zip((1 - tail, tail), _student(values), strict=True):
        at = (below < share * below[:, -1:]).sum(-1).clip(max=t.shape[-1] - 1)
        end = values.mean(-1) - error * t[np.arange(len(t)), order[np.arange(len(t)), at]]
        ends.append(np.where(tied, usual, end))
    return ends[0], ends[1]


@cache
def _resamples(n: int) -> tuple[Floats, Floats]:
    """Shares (R, n) that each of n seeds has in a resample, and the probability of each, (R,), without those of one seed alone.

    All of them for few seeds; else drawn, from a fixed seed: the same table has the same interval wherever it is made.
    """
    if n <= MOST_ENUMERATED:
        counts = np.array([c for c in product(range(n), repeat=n) if sum(c) == n])
        weights = np.exp(-gammaln(counts + 1.0).sum(-1))
    else:
        counts = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), 2000)
        weights = np.ones(len(counts))
    return counts / n, weights / weights.sum()


def _standard_error(values: Floats) -> Floats:
    error: Floats = values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return error


def paired(differences: Floats) -> Floats:
    """Two-sided p of the paired t-test that the mean difference is zero: (..., n) -> (...), 1 where nothing can be told.

    Seeds pair up: the same seed has the same data and the same test contexts. A t-test and not the bootstrap, whose smallest
    p with five seeds is too large to survive a correction, and which rejects too often without one.
    """
    counts = np.isfinite(differences).sum(-1)
    filled = np.nan_to_num(differences)
    safe = np.maximum(counts, 2)
    mean = filled.sum(-1) / safe
    squares = (np.where(np.isfinite(differences), filled - mean[..., None], 0) ** 2).sum(-1)
    error = np.sqrt(squares / (safe - 1) / safe)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(mean) / error  # 0 / 0 where entries agree on every seed
    p = 2 * stdtr(safe - 1, -np.nan_to_num(t, nan=0.0, posinf=np.inf))
    result: Floats = np.where(counts >= FEWEST_SEPARATED, p, 1.0)
    return result


def holm(p: Floats) -> Floats:
    """p-values corrected for how many there are (Holm 1979): below 0.05 at most one family in twenty has a false one. (m,)"""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1)
    return corrected


def separated(differences: Floats, p: Floats) -> NDArray[np.bool_]:
    """Which differences (m, n) are told from zero: by their corrected p (m,) and by their interval, shown beside each other."""
    real = p < 1 - CONFIDENCE
    low, high = interval(differences[real])
    real[real] = (low > 0) | (high < 0)
    return real


class Standing(NamedTuple):
    """Where an entry stands among others. Tiers count from 1; places are the best and the worst that cannot be ruled out."""

    tier: int
    best_place: int
    worst_place: int
    ahead_of: tuple[int, ...]
    """The entries, by index, that it is separated from and better than."""


def standings(values: Floats) -> list[Standing]:
    """Standings of entries (E, seeds) of which a lower mean is better, in order of their means.

    Every pair is tested, paired by seed and corrected together (Holm). An entry's places follow from how many others are
    separated from it, above and below (rank confidence sets: Mogstad et al. 2024). A tier ends only where all entries so far
    are separated from all that follow, so two entries that cannot be separated share one.
    """
    entries = len(values)
    first, second = np.triu_indices(entries, 1)
    differences = values[first] - values[second]
    real = separated(differences, holm(paired(differences)))
    lower = np.nansum(differences, -1) < 0
    ahead = np.zeros((entries, entries), dtype=bool)  # [i, j]: i is ahead of j
    ahead[first, second] = real & lower
    ahead[second, first] = real & ~lower
    tiers, tier = [], 1
    for place in range(entries):
        if place and ahead[:place, place:].all():
            tier += 1
        tiers.append(tier)
    above, below = ahead.sum(0), ahead.sum(1)
    return [
        Standing(tiers[i], int(above[i]) + 1, entries - int(below[i]), tuple(np.flatnonzero(ahead[i]).tolist()))
        for i in range(entries)
    ]


def effective_length(lengths: Sequence[int], kept: Sequence[bool]) -> int:
    """The longest length up to which all is kept, 0 if not even the shortest.

    >>> effective_length([8, 16, 32, 64], [True, True, False, True])
    16
    """
    longest = 0
    for length, good in zip(lengths, kept, strict=True):
        if not good:
            break
        longest = length
    return longest
