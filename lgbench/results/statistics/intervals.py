"""Estimates over seeds with 95 % confidence intervals: means, shares, effective lengths, and scores over several families.

Scores over families follow Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice" (arXiv
2108.13264). A stratum is a family: one score for each seed, lower is better. All strata have equal weight, whatever their
number of seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, stdtrit

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
MAX_ROWS = 4096
"""Rows per step: a bootstrap takes 16 kB of memory for each row."""
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
        low[chosen], high[chosen] = np.hstack([ends(part) for part in in_parts(known)])
    return low.reshape(values.shape[:-1]), high.reshape(values.shape[:-1])


def share_interval(values: Floats) -> tuple[Floats, Floats]:
    """95 % confidence interval of a share: (..., n) of 0, 1 and NaN -> lower and upper end (...), NaN for fewer than two seeds.

    The interval of a mean would be [0, 0] if none of a few seeds diverged, although the next seed may diverge.
    """
    known = np.isfinite(values)
    n = known.sum(-1)
    low, high = _exact(np.where(known, values, 0).sum(-1), n)
    return np.where(n > 1, low, np.nan), np.where(n > 1, high, np.nan)


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


def in_parts(rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Parts of at most MAX_ROWS rows."""
    return np.array_split(rows, max(1, -(-len(rows) // MAX_ROWS)))


def _student(values: Floats) -> tuple[Floats, Floats]:
    n = values.shape[-1]
    reach = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * _standard_error(values)
    return values.mean(-1) - reach, values.mean(-1) + reach


def _bootstrap(values: Floats) -> tuple[Floats, Floats]:
    """Bootstrap interval of each row of (rows, n); rows are sorted, so the order of the seeds has no effect."""
    n = values.shape[-1]
    # A fixed seed: equal tables have equal intervals.
    shares = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    tail = expanded_tail(n)
    low, high = np.quantile(values @ shares.T, [tail, 1 - tail], axis=-1)
    return low, high


def _standard_error(values: Floats) -> Floats:
    error: Floats = values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return error


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


def stratified_interval(draws: Floats, *samples: Strata) -> tuple[float, float]:
    """95 % interval of a statistic of `samples`, from its values `draws` on their resamples.

    The percentile interval, expanded as for means: resamples of n values have (n - 1) / n of the right variance, and few seeds
    need Student's t. NaN if a stratum has one seed.
    """
    sizes = np.array([own.shape[-1] for strata in samples for own in strata])
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
    """Slopes (S,) of log values (L, S) over log lengths (L,), by least squares; NaN for columns with a value not above 0."""
    if len(lengths) < 2:
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
