"""Intervals, tests and ranks over a handful of seeds: pure functions of arrays. Seeds are the last axis, NaN where missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr, stdtrit

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
MAX_ROWS = 4096
"""So many means or differences are looked at in one go: a bootstrap takes 16 kB of memory for each."""
MIN_BOOTSTRAP_SEEDS = 8
"""A resample's mean lies between the extremes. The true mean does so 94 times in 100 with five seeds, 99 times with eight."""
MIN_PAIRED_SEEDS = 3
"""With fewer common seeds no difference is significant: differences of rounded shares can then be equal by chance."""


def interval(values: Floats) -> tuple[Floats, Floats]:
    """95 % confidence interval of the mean over seeds: (..., n) -> lower and upper end (...), NaN for fewer than two seeds.

    From eight seeds on it is the percentile interval of a bootstrap over seeds, expanded because it is too narrow for small n
    (Hesterberg 2014, arXiv 1411.5279). Below that it is Student's t interval.
    """
    rows = values.reshape(-1, values.shape[-1])
    counts = np.isfinite(rows).sum(-1)
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for n in np.unique(counts[counts >= 2]):
        chosen = counts == n
        known = np.sort(rows[chosen], -1)[:, :n]  # NaN sorts last
        ends = _bootstrap if n >= MIN_BOOTSTRAP_SEEDS else _student
        low[chosen], high[chosen] = np.hstack([ends(part) for part in _parts(known)])
    return low.reshape(values.shape[:-1]), high.reshape(values.shape[:-1])


def _parts(rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Rows in parts of MAX_ROWS at most."""
    return np.array_split(rows, max(1, -(-len(rows) // MAX_ROWS)))


def _student(values: Floats) -> tuple[Floats, Floats]:
    n = values.shape[-1]
    reach = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * _standard_error(values)
    return values.mean(-1) - reach, values.mean(-1) + reach


def _bootstrap(values: Floats) -> tuple[Floats, Floats]:
    """The interval of each row of (rows, n). Values are sorted within a row, so that the order of the seeds changes nothing."""
    n = values.shape[-1]
    # A fixed seed: the same table has the same interval wherever and whenever it is made.
    shares = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    # The quantile of a normal distribution that reaches as far as Student's t does, with the spread's bias taken out.
    tail = ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    low, high = np.quantile(values @ shares.T, [tail, 1 - tail], axis=-1)
    return low, high


def _standard_error(values: Floats) -> Floats:
    error: Floats = values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return error


def paired(differences: Floats) -> Floats:
    """Two-sided p of the paired t-test that the mean difference is zero: (..., n) -> (...), 1 for fewer than MIN_PAIRED_SEEDS.

    Seeds pair up: the same seed has the same data and the same test contexts. The bootstrap would not do: with five seeds its
    smallest p is too large to survive a correction, and without a correction it rejects too often.
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
    result: Floats = np.where(counts >= MIN_PAIRED_SEEDS, p, 1.0)
    return result


def holm(p: Floats) -> Floats:
    """p-values corrected for their number (Holm 1979), (m,): at 0.05, one family in twenty has a false positive at most."""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1)
    return corrected


def significant(differences: Floats, p: Floats) -> NDArray[np.bool_]:
    """Which mean differences (m, n) are significantly different from zero: both by the corrected p (m,) and by the interval."""
    real = p < 1 - CONFIDENCE
    low, high = interval(differences[real])
    real[real] = (low > 0) | (high < 0)
    return real


class Standing(NamedTuple):
    """Where an entry stands among others. Tiers count from 1."""

    tier: int
    best_rank: int
    """The best rank of the entry's rank interval."""
    worst_rank: int
    better_than: tuple[int, ...]
    """The entries, by index, that this one is significantly better than."""


def standings(values: Floats) -> list[Standing]:
    """Standings of entries (E, seeds), which are in order of their means. A lower mean is better.

    Every pair is tested, paired by seed and corrected together (Holm). An entry's rank interval follows from the numbers of
    entries that are significantly better and worse (rank confidence sets: Mogstad et al. 2024). A tier ends only where all
    entries so far are significantly better than all that follow, so two entries that are not significantly different share one.
    """
    entries = len(values)
    pairs = np.stack(np.triu_indices(entries, 1), 1)
    p = holm(np.concatenate([paired(values[part[:, 0]] - values[part[:, 1]]) for part in _parts(pairs)]))
    better = np.zeros((entries, entries), dtype=bool)  # [i, j]: i is significantly better than j
    for part, own in zip(_parts(pairs), _parts(p), strict=True):
        first, second = part.T
        differences = values[first] - values[second]
        real = significant(differences, own)
        lower = np.nansum(differences, -1) < 0
        better[first, second] = real & lower
        better[second, first] = real & ~lower
    tiers, tier = [], 1
    for i in range(entries):
        if i and better[:i, i:].all():
            tier += 1
        tiers.append(tier)
    above, below = better.sum(0), better.sum(1)
    return [
        Standing(tiers[i], int(above[i]) + 1, entries - int(below[i]), tuple(np.flatnonzero(better[i]).tolist()))
        for i in range(entries)
    ]


def effective_length(lengths: Sequence[int], reached: Sequence[bool]) -> int:
    """The longest length up to which every mean is better than the threshold, 0 if the first is not.

    >>> effective_length([8, 16, 32, 64], [True, True, False, True])
    16
    """
    longest = 0
    for length, good in zip(lengths, reached, strict=True):
        if not good:
            break
        longest = length
    return longest
