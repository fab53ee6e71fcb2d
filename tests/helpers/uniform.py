"""Chi-square tests of draws against a uniform distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence, Set


def looks_uniform(drawn: Iterable[Hashable], outcomes: Set[Hashable]) -> bool:
    """Whether nothing else was drawn than these outcomes, and their counts are as equal as chance makes them."""
    counts = Counter(drawn)
    return counts.keys() <= outcomes and are_uniform([counts[outcome] for outcome in outcomes])


def are_uniform(counts: Sequence[float]) -> bool:
    """Whether chi-square is at most six standard deviations above its mean."""
    expected, freedom = sum(counts) / len(counts), len(counts) - 1
    return sum((count - expected) ** 2 / expected for count in counts) <= freedom + 6 * (2 * freedom) ** 0.5
