"""Overall boards: one score over all families for each complete entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import BoardHeader, Level, unsound
from lgbench.results.columns import BoardValues, rounded
from lgbench.results.metrics import Metric
from lgbench.results.statistics import (
    Floats,
    improvement,
    interquartile_mean,
    profile,
    resampled,
    stratified_interval,
    stratified_mean,
)

LIMITS = np.arange(26) / 20
"""Limits of performance profiles: from a perfect answer to a quarter worse than the context-free baseline, in steps of 0.05."""


class Family(NamedTuple):
    """Values of the board of a family."""

    header: BoardHeader
    models: BoardValues
    context_free: Sequence[Level]
    """Context-free baseline, by column; empty if unknown."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval, None if some family has one seed."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class OverallRow:
    """One entry with runs on every family. Scores are relative: 0 is perfect, 1 equal to the context-free baseline."""

    entry: str
    score: Estimate
    """Interquartile mean over families and seeds; lower is better."""
    mean: Estimate
    """Mean over families and seeds."""
    ranks_without: tuple[int, ...]
    """Rank by the interquartile mean with each family left out, in the order of the families."""
    improvement: Estimate | None
    """Probability of improvement on the baseline entry, mean over families; its interval is never of width zero. None for the
    baseline itself, and for a baseline without runs on every family."""
    families: tuple[float, ...]
    """Mean score of each family."""
    seeds: tuple[int, ...]
    """Number of seeds of each family."""
    profile: tuple[float, ...]
    """Share of runs with a score up to each limit."""


@dataclass(frozen=True)
class Overall:
    """Entries on all families, by one metric, under one protocol, best score first."""

    metric: Metric
    protocol: ProtocolUse
    families: tuple[str, ...]
    limits: tuple[float, ...]
    baseline: str
    rows: tuple[OverallRow, ...]
    left_out: int
    """Number of entries without a complete seed on every family."""
    unsound: tuple[str, ...]
    """A sentence for each entry left out because of unsound answers."""


def overall(families: Sequence[Family], baseline: str) -> Overall | None:
    """Overall board; None for one family, without a complete entry, or without a context-free baseline of each family."""
    units = [_context_free(family) for family in families]
    if len(families) < 2 or None in units:
        return None
    entries = {entry for family in families for entry in family.models.entries}
    untrusted = {entry for entry in entries if any(family.models.unsound(entry) for family in families)}
    found = {entry: _scores(families, units, entry) for entry in sorted(entries - untrusted)}
    scores = {entry: own for entry, own in found.items() if all(len(values) for values in own)}
    if not scores:
        return None
    header = families[0].header
    rows = _rows(scores, baseline)
    return Overall(
        metric=header.metric,
        protocol=header.protocol,
        families=tuple(family.header.name for family in families),
        limits=tuple(LIMITS.tolist()),
        baseline=baseline,
        rows=rows,
        left_out=len(found) - len(scores),
        unsound=tuple(f"{family.header.name}: {sentence}" for family in families for sentence in unsound(family.models)),
    )


def _context_free(family: Family) -> float | None:
    """Context-free baseline in the ranking column; None for an unknown or a perfect baseline."""
    column, perfect = family.models.ranked_by[0], family.header.metric.perfect
    level = next((level.mean for level in family.context_free if level.kind == column), None)
    return None if perfect is None or level == perfect else level


def _scores(families: Sequence[Family], units: Sequence[float | None], entry: str) -> list[Floats]:
    """Scores of the seeds of an entry on each family, (seeds,); empty for a family without runs."""
    found = []
    for (header, models, _), context_free in zip(families, units, strict=True):
        perfect = header.metric.perfect
        assert context_free is not None and perfect is not None
        values = models.column(models.ranked_by, [entry])[0] if entry in models.entries else np.empty(0)
        found.append((values[np.isfinite(values)] - perfect) / (context_free - perfect))
    return found


def _rows(scores: dict[str, list[Floats]], baseline: str) -> tuple[OverallRow, ...]:
    """Rows, best first, with independent resamples of each entry."""
    ranks = _ranks_without(scores)
    rows = []
    for key, (entry, own) in enumerate(scores.items()):
        draws = resampled(own, key)
        compared = baseline in scores and entry != baseline
        rows.append(
            OverallRow(
                entry=entry,
                score=_estimate(interquartile_mean(own).item(), *stratified_interval(interquartile_mean(draws), own)),
                mean=_estimate(stratified_mean(own).item(), *stratified_interval(stratified_mean(draws), own)),
                ranks_without=ranks[entry],
                improvement=_estimate(*improvement(own, scores[baseline])) if compared else None,
                families=tuple(rounded(values.mean()) for values in own),
                seeds=tuple(map(len, own)),
                profile=tuple(map(rounded, profile(own, LIMITS))),
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.score.value, row.entry)))


def _ranks_without(scores: dict[str, list[Floats]]) -> dict[str, tuple[int, ...]]:
    """Rank of each entry by the interquartile mean with each family left out; equal scores share a rank."""
    families = range(len(next(iter(scores.values()))))
    left = np.array([[interquartile_mean(own[:f] + own[f + 1 :]) for f in families] for own in scores.values()])
    ranks = 1 + (left[:, None] > left + 1e-12).sum(1)  # sums of equal scores may differ in the last bits
    return dict(zip(scores, map(tuple, ranks.tolist()), strict=True))


def _estimate(value: float, low: float, high: float) -> Estimate:
    ends = (None, None) if np.isnan(low) else (rounded(low), rounded(high))
    return Estimate(rounded(value), *ends)
