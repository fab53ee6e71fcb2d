"""Comparison of two entries: differences paired by seed, at each length and of the means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lgbench.errors import UsageError
from lgbench.results import statistics
from lgbench.results.boards import BoardHeader, failing
from lgbench.results.columns import BoardValues, Column, ends, rounded
from lgbench.results.entries import find_entry, short
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric
from lgbench.results.statistics import CONFIDENCE, MIN_PAIRED_SEEDS, MOST_SEEDS, POWER, Floats
from lgbench.terminal import counted

INTEREST = 0.02
"""Smallest difference of interest, as a share of the range of the metric."""


@dataclass(frozen=True)
class Difference:
    """Means of two entries over n common seeds in one column, and the mean of first - second with its 95 % interval."""

    kind: str
    """As in :data:`lgbench.results.columns.Column`."""
    length: int | None
    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    n: int
    p: float
    """p of the paired t-test, corrected (Holm) for the lengths of a board, or for the boards of a comparison."""
    significant: bool
    """Whether p is below 0.05. The interval, without correction, then excludes 0."""
    decided_by: tuple[int, ...] = ()
    """For the ranking column: failing seeds that make the verdict, as in :class:`lgbench.results.boards.Against`."""


@dataclass(frozen=True)
class Planned:
    """Number of seeds for a difference of interest, from the observed variance."""

    difference: float
    """Smallest difference of interest; the observed difference for a metric without a range."""
    seeds: int | None
    """Seeds for a power of 80 %, corrected for the boards of the comparison; None above MOST_SEEDS."""


@dataclass(frozen=True)
class Comparison(BoardHeader):
    """Two entries on one board."""

    first: str
    second: str
    mean: Difference
    """Difference in the ranking column: of OOD means, or of ID means without OOD measurements."""
    lengths: tuple[Difference, ...]
    planned: Planned | None
    """None for a significant difference, for unsound entries, and without an estimate of the variance."""
    verdict: str


def compare(
    results: Results, first: str, second: str, metric: str, name: str | None = None, protocol: str | None = None
) -> list[Comparison]:
    """Comparison of two entries, by full or short names, on every board with common seeds.

    Raises UsageError for an unknown name, or without any common seed.
    """
    results.chosen(metric, name, protocol)
    results.require_ranks(metric)
    every = results.models(metric, name, protocol)
    known = {entry for _, models in every for entry in models.entries if models.seeds_of(entry)}
    results.require_entries((first, second), known, metric, name, protocol)
    first, second = find_entry(first, known), find_entry(second, known)
    if first == second:
        raise UsageError(f"{first} cannot be compared with itself; name two entries")
    shared = [(about, models) for about, models in every if _common(models, first, second, models.ranked_by)]
    if not shared:
        raise UsageError(f"{first} and {second} have no seed in common on any board; run both on one task, under one protocol")
    means = _corrected([_difference(board, models, first, second, models.ranked_by) for board, models in shared])
    pairs = (models.column(models.ranked_by, [first, second]) for _, models in shared)
    lost = [failing(models, first, second) for _, models in shared]
    decided = statistics.deciding_seeds([one - other for one, other in pairs], lost, [models.seeds for _, models in shared])
    return [
        _comparison(board, models, first, second, replace(mean, decided_by=seeds), len(shared))
        for (board, models), mean, seeds in zip(shared, means, decided, strict=True)
    ]


def _comparison(board: BoardHeader, models: BoardValues, first: str, second: str, mean: Difference, tests: int) -> Comparison:
    columns = [column for column in models.columns if column[0] == "length" and _common(models, first, second, column)]
    lengths = _corrected([_difference(board, models, first, second, column) for column in columns])
    if any(map(models.unsound, (first, second))):
        mean, *lengths = (replace(difference, significant=False) for difference in (mean, *lengths))
    unsound = _unsound(board, models, first, second)
    planned = None if mean.significant or unsound else _planned(board.metric, models, first, second, tests)
    sentences = [
        _judged(board, first, second, mean),
        *_exception(mean),
        *([_outlook(planned)] if planned else []),
        _at_lengths(lengths),
    ]
    verdict = unsound or " ".join(sentences)
    return Comparison(
        **vars(board), first=first, second=second, mean=mean, lengths=tuple(lengths), planned=planned, verdict=verdict
    )


def _unsound(board: BoardHeader, models: BoardValues, first: str, second: str) -> str | None:
    """One sentence against a comparison of unsound entries: numbers of a model that is not causal have no meaning."""
    reasons = [f"{entry} is not ranked: {reason}" for entry in (first, second) if (reason := models.unsound(entry))]
    return f"On {board.name} nothing is concluded, for {' and '.join(reasons)}." if reasons else None


def _common(models: BoardValues, first: str, second: str, column: Column) -> int:
    """Number of seeds with a value of both entries."""
    if not {first, second} <= set(models.entries):
        return 0
    return int(np.isfinite(models.column(column, [first, second])).all(0).sum())


def _difference(board: BoardHeader, models: BoardValues, first: str, second: str, column: Column) -> Difference:
    """Difference with an uncorrected p."""
    pair: Floats = models.column(column, [first, second])
    means = pair[:, np.isfinite(pair).all(0)].mean(-1)
    found = statistics.paired_t(pair[0] - pair[1])
    low, high = ends(found.low, found.high, board.metric.highest - board.metric.lowest)
    return Difference(
        kind=column[0],
        length=column[1],
        first=rounded(means[0]),
        second=rounded(means[1]),
        difference=rounded(means[0] - means[1]),
        low=low,
        high=high,
        n=int(found.seeds),
        p=found.p.item(),
        significant=False,
    )


def _corrected(differences: Sequence[Difference]) -> list[Difference]:
    p = statistics.holm(np.array([difference.p for difference in differences])).tolist()
    return [replace(d, p=float(f"{new:.3g}"), significant=new < 1 - CONFIDENCE) for d, new in zip(differences, p, strict=True)]


def _planned(metric: Metric, models: BoardValues, first: str, second: str, tests: int) -> Planned | None:
    """Planned seeds for the difference of the means, at a level of significance corrected for all tests."""
    one, other = models.column(models.ranked_by, [first, second])
    found = statistics.paired_t(one - other)
    unbounded = metric.high is None or metric.low is None
    of_interest = abs(rounded(found.mean.item())) if unbounded else INTEREST * (metric.highest - metric.lowest)
    if found.seeds < MIN_PAIRED_SEEDS or not of_interest:
        return None
    return Planned(of_interest, statistics.seeds_needed(of_interest, found.variance.item(), (1 - CONFIDENCE) / tests))


def _outlook(planned: Planned) -> str:
    """One sentence on the number of seeds for a decision."""
    if planned.seeds is None:
        return f"More than {MOST_SEEDS:,} seeds would be needed to find a difference of {planned.difference:g}."
    return f"{planned.seeds} seeds find a difference of {planned.difference:g} in {100 * POWER:.0f} % of cases."


def _judged(board: BoardHeader, first: str, second: str, mean: Difference) -> str:
    """One sentence on the significantly better entry, or on the lack of significance."""
    where = f"on {board.title} {mean.kind} under {board.protocol}"
    if mean.n < MIN_PAIRED_SEEDS:
        common = f"they have {counted(mean.n, 'seed')} in common, and a test needs {MIN_PAIRED_SEEDS}"
        return f"The difference between {first} and {second} {where} is not significant: {common}."
    sides = [(first, mean.first), (second, mean.second)]
    said = f"The difference between {first} and {second} {where} is not significant"
    if mean.significant:
        if board.metric.sign * mean.difference > 0:  # not by the means, which may be equal when rounded
            sides.reverse()  # the better first
        said = f"{sides[0][0]} is significantly better than {sides[1][0]} {where}"
    size = f"{board.metric.label} {sides[0][1]:.4f} against {sides[1][1]:.4f}"
    less = " less ".join(short((first, second)))  # as in the table
    difference = f"{less} is {mean.difference:+.4f} [{mean.low:+.4f}, {mean.high:+.4f}]"
    return f"{said}: {size}; {difference} over {mean.n} seeds (p = {mean.p:.2g})."


def _exception(mean: Difference) -> list[str]:
    """A sentence on a verdict that changes without one failing seed."""
    if not mean.decided_by:
        return []
    seeds = " or ".join(map(str, mean.decided_by))
    without = "not significant" if mean.significant else "significant"
    return [f"One failing seed makes this verdict: without seed {seeds}, not fitted, the difference is {without}."]


def _at_lengths(lengths: Sequence[Difference]) -> str:
    """One sentence on the lengths with a significant difference."""
    found = [str(difference.length) for difference in lengths if difference.significant]
    if not found:
        return f"The difference is not significant at any of {len(lengths)} lengths."
    return f"The difference is significant at {len(found)} of {len(lengths)} lengths: {', '.join(found)}."
