"""Summaries of all families: overall boards, with one score for each complete entry, and grids of entries by families."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import Board, MeasuredBoard, unsound
from lgbench.results.columns import OOD, ends, rounded
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


def overall(families: Sequence[MeasuredBoard], baseline: str) -> Overall | None:
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


def _context_free(family: MeasuredBoard) -> float | None:
    """Context-free baseline in the ranking column; None for an unknown or a perfect baseline."""
    column, perfect = family.models.ranked_by[0], family.header.metric.perfect
    level = next((level.mean for level in family.levels if level.kind == column), None)
    return None if perfect is None or level == perfect else level


def _scores(families: Sequence[MeasuredBoard], units: Sequence[float | None], entry: str) -> list[Floats]:
    """Scores of the seeds of an entry on each family, (seeds,); empty for a family without runs."""
    found = []
    for family, context_free in zip(families, units, strict=True):
        models, perfect = family.models, family.header.metric.perfect
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
    return Estimate(rounded(value), *ends(low, high))


@dataclass(frozen=True)
class GridCell:
    """OOD mean of an entry over the tasks of a column."""

    mean: float
    share: float | None
    """Distance to a perfect answer, as a share of the distance of the context-free baseline: 0 is perfect, 1 as bad as the
    baseline. None where the baseline is unknown or perfect."""
    best: bool
    """Whether no mean of the column is better, nor the context-free baseline. False for the only entry of a column."""
    may_be_best: bool
    """Whether the rank interval begins with 1. False in the column of a class, which has no ranks, and for its only entry."""


@dataclass(frozen=True)
class GridColumn:
    """Tasks of a family or a class, such as "star-free"."""

    kind: Literal["family", "class"]
    name: str
    tasks: tuple[str, ...]
    """Tasks of a class; empty for a family."""
    context_free: float | None
    """OOD mean of the context-free baseline; None if unknown."""


@dataclass(frozen=True)
class GridRow:
    """Cells of one entry, None for a column without runs of all its tasks."""

    entry: str
    cells: tuple[GridCell | None, ...]


@dataclass(frozen=True)
class Grid:
    """Ranked entries with raw weights by columns, under one protocol.

    Entries that share their families with most others come first, and equal ones in the order of their mean.
    """

    metric: Metric
    protocol: ProtocolUse
    columns: tuple[GridColumn, ...]
    rows: tuple[GridRow, ...]


def grid(families: Sequence[Board], tasks: Mapping[str, Board], classes: Mapping[str, str]) -> Grid:
    """Grid of boards of one metric and protocol: a board for each family, boards by task, and the class of each task."""
    metric = families[0].metric
    columns = [_family(board) for board in families]
    groups: dict[str, list[Board]] = defaultdict(list)
    for name, board in sorted(tasks.items()):
        if name in classes:
            groups[classes[name]].append(board)
    columns += [_class(kind, boards) for kind, boards in sorted(groups.items())]
    entries = {entry for _, cells in columns for entry in cells}
    rows = [GridRow(entry, tuple(cells.get(entry) for _, cells in columns)) for entry in entries]
    counts = [len(cells) for _, cells in columns[: len(families)]]
    return Grid(
        metric=metric,
        protocol=families[0].protocol,
        columns=tuple(column for column, _ in columns),
        rows=tuple(sorted(rows, key=lambda row: _place(row, counts, metric))),
    )


def _place(row: GridRow, counts: Sequence[int], metric: Metric) -> tuple[int, float, str]:
    """Sort key of a row: number of other entries, summed over its families, and its mean. `counts`: entries of each family."""
    cells = [(cell, count) for cell, count in zip(row.cells, counts, strict=False) if cell]
    values = [metric.sign * cell.mean if cell.share is None else cell.share for cell, _ in cells]
    return -sum(count - 1 for _, count in cells), fmean(values) if values else 0.0, row.entry


def _family(board: Board) -> tuple[GridColumn, dict[str, GridCell]]:
    context_free = board.context_free_level(*OOD)
    first = {row.entry for row in board.rows if row.rank_interval and row.rank_interval[0] == 1}
    return GridColumn("family", board.name, (), context_free), _cells(_means(board), context_free, board.metric, first)


def _class(kind: str, boards: Sequence[Board]) -> tuple[GridColumn, dict[str, GridCell]]:
    """Column of a class: means over its tasks, of entries with runs of all."""
    means = [_means(board) for board in boards]
    levels = [level for board in boards if (level := board.context_free_level(*OOD)) is not None]
    context_free = rounded(fmean(levels)) if len(levels) == len(boards) else None
    complete = set.intersection(*(set(own) for own in means))
    of_all = {entry: rounded(fmean(own[entry] for own in means)) for entry in complete}
    column = GridColumn("class", kind, tuple(board.name for board in boards), context_free)
    return column, _cells(of_all, context_free, boards[0].metric, ())


def _means(board: Board) -> dict[str, float]:
    """OOD means of ranked entries with raw weights."""
    ranked = (row for row in board.rows if row.rank_interval and "@" not in row.entry)
    return {row.entry: cell.mean for row in ranked if (cell := row.cell(*OOD))}


def _cells(
    means: Mapping[str, float], context_free: float | None, metric: Metric, first: Collection[str]
) -> dict[str, GridCell]:
    perfect = metric.perfect
    best = min(metric.sign * mean for mean in means.values()) if len(means) > 1 else None

    def cell(entry: str, mean: float) -> GridCell:
        share = None
        if context_free is not None and perfect is not None and context_free != perfect:
            share = (mean - perfect) / (context_free - perfect)
        return GridCell(
            mean, share, metric.sign * mean == best and (share is None or share < 1), entry in first and len(means) > 1
        )

    return {entry: cell(entry, mean) for entry, mean in means.items()}
