"""Grid of entries by families and by classes of tasks: OOD means as shares of the context-free baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from lgbench.experiment.record import ProtocolUse
from lgbench.results.boards import Board
from lgbench.results.columns import OOD, rounded
from lgbench.results.metrics import Metric


@dataclass(frozen=True)
class GridCell:
    """OOD mean of an entry over the tasks of a column."""

    mean: float
    share: float | None
    """Distance to a perfect answer, as a share of the distance of the context-free baseline: 0 is perfect, 1 as bad as the
    baseline. None where the baseline is unknown or perfect."""
    best: bool
    """Whether no mean of the column is better."""
    may_be_best: bool
    """Whether the rank interval begins with 1. False in the column of a class, which has no ranks."""


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
    """Ranked entries with raw weights by columns, under one protocol: entries of most families first, then the best mean."""

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
    return Grid(
        metric=metric,
        protocol=families[0].protocol,
        columns=tuple(column for column, _ in columns),
        rows=tuple(sorted(rows, key=lambda row: _place(row, len(families), metric))),
    )


def _place(row: GridRow, families: int, metric: Metric) -> tuple[int, float, str]:
    """Sort key of a row: number of families, mean over families."""
    cells = [cell for cell in row.cells[:families] if cell]
    values = [metric.sign * cell.mean if cell.share is None else cell.share for cell in cells]
    return -len(cells), fmean(values) if values else 0.0, row.entry


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
    perfect, best = metric.perfect, min((metric.sign * mean for mean in means.values()), default=None)

    def share(mean: float) -> float | None:
        return (
            None
            if context_free is None or perfect is None or context_free == perfect
            else (mean - perfect) / (context_free - perfect)
        )

    return {entry: GridCell(mean, share(mean), metric.sign * mean == best, entry in first) for entry, mean in means.items()}
