"""What a handful of seeds says, and what it does not: pure functions of arrays. Seeds stand last, NaN where one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr, stdtrit

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
FEWEST_RESAMPLED = 8
"""A resample's mean lies between the extremes, and with five seeds the truth does 94 times in 100 only, with eight 99 times."""
FEWEST_SEPARATED = 3
"""Fewer common seeds separate nothing: differences of rounded shares can then be equal by chance."""


def interval(values: Floats) -> tuple[Floats, Floats]:
    """95 % confidence interval of the mean over seeds: (..., n) -> lower and upper end (...), NaN for fewer than two seeds.

    From eight seeds on a bootstrap over seeds: the percentile interval, expanded by what it is too narrow for small n
    (Hesterberg 2014, arXiv 1411.5279). Student's t below that.
    """
    rows = values.reshape(-1, values.shape[-1])
    counts = np.isfinite(rows).sum(-1)
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for n in np.unique(counts[counts >= 2]):
        chosen = counts == n
        known = np.sort(rows[chosen], -1)[:, :n]  # NaN sorts last
        low[chosen], high[chosen] = _bootstrap(known) if n >= FEWEST_RESAMPLED else _student(known)
    return low.reshape(values.shape[:-1]), high.reshape(values.shape[:-1])


def _student(values: Floats) -> tuple[Floats, Floats]:
    n = values.shape[-1]
    reach = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * _standard_error(values)
    return values.mean(-1) - reach, values.mean(-1) + reach


def _bootstrap(values: Floats) -> tuple[Floats, Floats]:
    """Of (rows, n), in which seeds are in order of their values: then the order in which they came changes nothing."""
    n = values.shape[-1]
    # From a fixed seed: the same table has the same interval wherever and whenever it is made.
    shares = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    # The quantile of a normal distribution that reaches as far as Student's t does, with the spread's bias taken out.
    tail = ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    low, high = np.quantile(values @ shares.T, [tail, 1 - tail], axis=-1)
    return low, high


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
