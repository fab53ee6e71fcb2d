"""All families together: one number for each entry that ran every family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import BoardHeader, Level, unsound
from lgbench.results.columns import Models, rounded
from lgbench.results.metrics import Metric
from lgbench.results.statistics import (
    Floats,
    improvement,
    interquartile_mean,
    profile,
    resampled,
    stratified_interval,
)

LIMITS = np.arange(26) / 20
"""From a perfect answer to a quarter worse than chance, in steps of 0.05: where performance profiles are looked at."""


class Family(NamedTuple):
    """Values of the board of a family."""

    header: BoardHeader
    models: Models
    chance: Sequence[Level]
    """Context-free baseline, by column; empty if it is unknown."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval, which is None where some family has one seed."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class OverallRow:
    """One entry that ran every family. All scores are shares of chance: 0 is perfect, 1 as bad as chance."""

    entry: str
    score: Estimate
    """The interquartile mean over families and seeds. Lower is better."""
    improvement: Estimate | None
    """The probability that a run is better than a run of the baseline, mean over families. None for the baseline itself, and
    where the baseline did not run every family."""
    families: tuple[float, ...]
    """The mean score of each family."""
    seeds: tuple[int, ...]
    """The number of seeds of each family."""
    profile: tuple[float, ...]
    """The share of runs whose score is at most each of the limits."""


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
    """How many entries lack a family, or a seed that has all tasks of one."""
    unsound: tuple[str, ...]
    """A sentence for each entry that is left out because its answers cannot be trusted."""


def overall(families: Sequence[Family], baseline: str) -> Overall | None:
    """None where there is one family, or no entry ran all, or a family has no chance level to measure with."""
    units = [_chance(family) for family in families]
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


def _chance(family: Family) -> float | None:
    """The chance level in the column that orders entries; None where it is unknown, or no worse than perfect."""
    column, perfect = family.models.ranked_by[0], family.header.metric.perfect
    level = next((level.mean for level in family.chance if level.kind == column), None)
    return None if perfect is None or level == perfect else level


def _scores(families: Sequence[Family], units: Sequence[float | None], entry: str) -> list[Floats]:
    """Of each family the scores of an entry's seeds, (seeds,): empty where it did not run the family."""
    found = []
    for (header, models, _), chance in zip(families, units, strict=True):
        perfect = header.metric.perfect
        assert chance is not None and perfect is not None
        values = models.column(models.ranked_by, [entry])[0] if entry in models.entries else np.empty(0)
        found.append((values[np.isfinite(values)] - perfect) / (chance - perfect))
    return found


def _rows(scores: dict[str, list[Floats]], baseline: str) -> tuple[OverallRow, ...]:
    """Best first. Each entry has resamples of its own."""
    draws = {entry: resampled(own, key) for key, (entry, own) in zip(count(), scores.items(), strict=False)}
    rows = []
    for entry, own in scores.items():
        better = None
        if baseline in scores and entry != baseline:
            other, values = scores[baseline], improvement(draws[entry], draws[baseline])
            better = _estimate(improvement(own, other), *stratified_interval(values, own, other))
        rows.append(
            OverallRow(
                entry=entry,
                score=_estimate(interquartile_mean(own), *stratified_interval(interquartile_mean(draws[entry]), own)),
                improvement=better,
                families=tuple(rounded(values.mean()) for values in own),
                seeds=tuple(map(len, own)),
                profile=tuple(map(rounded, profile(own, LIMITS))),
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.score.value, row.entry)))


def _estimate(value: Floats, low: float, high: float) -> Estimate:
    ends = (None, None) if np.isnan(low) else (rounded(low), rounded(high))
    return Estimate(rounded(value.item()), *ends)
