"""Leaderboards as data: what the seeds of each entry say, column by column, and which entries they tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lgbench.ranking.statistics import Floats, effective_length, interval, standings

LOWER_IS_BETTER = {"tvd": True, "accuracy": False, "roc_auc": False}

KEPT = {"tvd": 0.1, "accuracy": 0.9, "roc_auc": 0.9}
"""The effective length is the longest up to which the mean is better than this; for the AUC that is our choice."""

LEARNED = 0.1
"""A seed has learned the training range of a task if its mean TVD there is below this."""

DIGITS = 4

Column = tuple[str, int | None]
"""A kind ("length", "in range" or "score") and the length, None for the other two."""


@dataclass(frozen=True)
class Models:
    """The values of one board before anything is averaged over seeds: (E, C, S), NaN where a seed has no value."""

    entries: tuple[str, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]
    values: Floats
    diverged: frozenset[tuple[str, int]]
    """Entry and seed of each training that diverged."""

    @classmethod
    def of(cls, rows: Iterable[tuple[str, int, str, int | None, float, bool]]) -> Models:
        """From rows (entry, seed, kind, length, value, diverged), each model and column once."""
        rows = list(rows)
        entries, seeds = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
        columns = sorted({(row[2], row[3]) for row in rows}, key=lambda column: (column[0], column[1] or 0))
        places = [{name: i for i, name in enumerate(names)} for names in (entries, columns, seeds)]
        values = np.full((len(entries), len(columns), len(seeds)), np.nan)
        for entry, seed, kind, length, value, _ in rows:
            values[places[0][entry], places[1][kind, length], places[2][seed]] = value
        diverged = frozenset((row[0], row[1]) for row in rows if row[5])
        return cls(tuple(entries), tuple(columns), tuple(seeds), values, diverged)

    def column(self, kind: str, length: int | None = None) -> Floats:
        """(E, S)."""
        column: Floats = self.values[:, self.columns.index((kind, length))]
        return column

    def seeds_of(self, entry: str) -> tuple[int, ...]:
        """The seeds that an entry has any value of."""
        known = np.isfinite(self.values[self.entries.index(entry)]).any(0)
        return tuple(seed for seed, has in zip(self.seeds, known, strict=True) if has)

    @property
    def decisive(self) -> Column:
        """What entries are ordered by: beyond the training range, or in it where nothing beyond was measured."""
        return ("score", None) if ("score", None) in self.columns else ("in range", None)


@dataclass(frozen=True)
class Cell:
    """One number of a board: the mean over n seeds and its 95 % interval, None for one seed."""

    kind: str
    """"length", "in range" or "score"."""
    length: int | None
    mean: float
    low: float | None
    high: float | None
    n: int
    values: tuple[float | None, ...]
    """Of each seed of the row, in order; None where the seed has none."""


@dataclass(frozen=True)
class Row:
    """One entry of a board. Its tier and places are None where it has no number to be ordered by."""

    entry: str
    tier: int | None
    """Entries that cannot be separated share a tier."""
    places: tuple[int, int] | None
    """The best and the worst place that cannot be ruled out."""
    ahead_of: tuple[str, ...]
    """The entries that it is separated from and better than."""
    seeds: tuple[int, ...]
    diverged: tuple[int, ...]
    """Seeds whose training diverged, on any task."""
    unlearned: tuple[int, ...]
    """Seeds that have not learned the training range of some task."""
    unlearned_tasks: dict[str, int]
    """How many seeds have not learned each task, where any has not."""
    effective_length: int
    """The longest length up to which the mean is better than KEPT, 0 if none."""
    effective_multiple: float
    """The same in training lengths."""
    cells: tuple[Cell, ...]

    def cell(self, kind: str, length: int | None = None) -> Cell | None:
        """The cell of a column, None where the entry has no number there."""
        return self._by_column.get((kind, length))

    @cached_property
    def _by_column(self) -> dict[Column, Cell]:
        return {(cell.kind, cell.length): cell for cell in self.cells}


@dataclass(frozen=True)
class Board:
    """Entries on one family (or task) under one version of task and protocol, by one metric, best mean first."""

    name: str
    metric: str
    task_version: int
    protocol: str
    tasks: int
    train_length: int
    rows: tuple[Row, ...]
    incomplete: tuple[str, ...]
    """A sentence for each entry that is left out because seeds of it lack tasks of the family."""

    @property
    def lengths(self) -> list[int]:
        """The lengths from the training length on, which are shown one by one."""
        return [length for length in self.all_lengths if length >= self.train_length]

    @property
    def all_lengths(self) -> list[int]:
        """Every length that any entry has a number at."""
        return sorted({c.length for row in self.rows for c in row.cells if c.length is not None})


Unlearned = Mapping[str, Mapping[str, Sequence[int]]]
"""By entry and task, the seeds that have not learned the training range."""


def ranked_rows(models: Models, metric: str, train_length: int, unlearned: Unlearned) -> tuple[Row, ...]:
    """The rows of a board, best mean first."""
    cells = _cells(models)
    direction = 1 if LOWER_IS_BETTER[metric] else -1
    means = dict(zip(models.entries, direction * _means(models.values).round(12), strict=True))  # not to the digits of a cell

    def mean(entry: str, column: Column) -> float:
        return float(means[entry][models.columns.index(column)]) if column in cells[entry] else np.inf

    order = sorted(models.entries, key=lambda entry: (mean(entry, models.decisive), mean(entry, ("in range", None)), entry))
    ranked = [entry for entry in order if models.decisive in cells[entry]]
    values = models.column(*models.decisive)[[models.entries.index(entry) for entry in ranked]]
    found = dict(zip(ranked, standings(direction * values), strict=True))
    rows = []
    for entry in order:
        seeds, standing = models.seeds_of(entry), found.get(entry)
        effective = _effective(cells[entry], metric)
        lost = {task: set(seeds) & set(own) for task, own in sorted(unlearned.get(entry, {}).items())}
        rows.append(
            Row(
                entry=entry,
                tier=standing.tier if standing else None,
                places=(standing.best_place, standing.worst_place) if standing else None,
                ahead_of=tuple(ranked[other] for other in standing.ahead_of) if standing else (),
                seeds=seeds,
                diverged=tuple(seed for seed in seeds if (entry, seed) in models.diverged),
                unlearned=tuple(sorted(set().union(*lost.values()))),
                unlearned_tasks={task: len(own) for task, own in lost.items() if own},
                effective_length=effective,
                effective_multiple=round(effective / train_length, DIGITS) if train_length else 0.0,
                cells=tuple(cells[entry].values()),
            )
        )
    return tuple(rows)


def _cells(models: Models) -> dict[str, dict[Column, Cell]]:
    counts, means = np.isfinite(models.values).sum(-1), _means(models.values)
    low, high = (np.clip(end, 0, 1) for end in interval(models.values))
    found: dict[str, dict[Column, Cell]] = {}
    for e, entry in enumerate(models.entries):
        own = np.isfinite(models.values[e]).any(0)
        for c, (kind, length) in enumerate(models.columns):
            if n := int(counts[e, c]):
                from_, to = (rounded(low[e, c]), rounded(high[e, c])) if n > 1 else (None, None)
                values = tuple(None if np.isnan(value) else rounded(value) for value in models.values[e, c, own])
                cell = Cell(kind, length, rounded(means[e, c]), from_, to, n, values)
                found.setdefault(entry, {})[kind, length] = cell
    return found


def _means(values: Floats) -> Floats:
    """Over the seeds that have a value: (..., S) -> (...)."""
    means: Floats = np.nan_to_num(values).sum(-1) / np.maximum(np.isfinite(values).sum(-1), 1)
    return means


def _effective(cells: Mapping[Column, Cell], metric: str) -> int:
    by_length = sorted((length, cell.mean) for (_, length), cell in cells.items() if length is not None)
    kept = [mean < KEPT[metric] if LOWER_IS_BETTER[metric] else mean > KEPT[metric] for _, mean in by_length]
    return effective_length([length for length, _ in by_length], kept)


def rounded(value: float) -> float:
    """To four digits; twice, so that what stands between two does not follow the last bits of a sum."""
    return round(round(float(value), 12), DIGITS)
