"""The 95 % confidence interval of a mean over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, stdtrit

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
MAX_ROWS = 4096
"""So many means or differences are looked at in one go: a bootstrap takes 16 kB of memory for each."""
MIN_BOOTSTRAP_SEEDS = 8
"""A resample's mean lies between the extremes. The true mean does so 94 times in 100 with five seeds, 99 times with eight."""


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
        low[chosen], high[chosen] = np.hstack([ends(part) for part in in_parts(known)])
    return low.reshape(values.shape[:-1]), high.reshape(values.shape[:-1])


def share_interval(values: Floats) -> tuple[Floats, Floats]:
    """95 % confidence interval of a share: (..., n) of 0, 1 and NaN -> lower and upper end (...), NaN for fewer than two seeds.

    The exact one of Clopper and Pearson (1934): where none of a few seeds diverged, the next one may, though a mean's interval
    would be [0, 0].
    """
    known = np.isfinite(values)
    n, count = known.sum(-1), np.where(known, values, 0).sum(-1)
    tail = (1 - CONFIDENCE) / 2
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), n - count + 1, tail), 0.0)
    high = np.where(count < n, betaincinv(count + 1, np.maximum(n - count, 1), 1 - tail), 1.0)
    return np.where(n > 1, low, np.nan), np.where(n > 1, high, np.nan)


def expanded_tail(n: int) -> float:
    """The share of resamples of n values that is cut off at each end of a 95 % interval (Hesterberg 2014, arXiv 1411.5279).

    The quantile of a normal distribution that reaches as far as Student's t does, with the spread's bias taken out.
    """
    return float(ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + CONFIDENCE) / 2)))


def in_parts(rows: NDArray[Any]) -> list[NDArray[Any]]:
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
    tail = expanded_tail(n)
    low, high = np.quantile(values @ shares.T, [tail, 1 - tail], axis=-1)
    return low, high


def _standard_error(values: Floats) -> Floats:
    error: Floats = values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return error
