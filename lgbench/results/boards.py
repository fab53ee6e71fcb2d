"""Leaderboards as data: the mean of each entry with its interval, and the entries that are significantly different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from lgbench.experiment.record import ProtocolUse
from lgbench.results.baseline import Against, against
from lgbench.results.columns import DIGITS, ID, OOD, Column, Models, mean_of_known, rounded, significant
from lgbench.results.fit import NotFitted
from lgbench.results.metrics import Metric
from lgbench.results.statistics import Standing, effective_length, interval, standings


@dataclass(frozen=True)
class Level:
    """The chance level in one column of a board: the value of the best prediction that ignores the context."""

    kind: str
    """As in :data:`lgbench.results.columns.Column`."""
    length: int | None
    mean: float


@dataclass(frozen=True)
class Cell:
    """One number of a board: the mean over n seeds and its 95 % interval, which is None for one seed."""

    kind: str
    """As in :data:`lgbench.results.columns.Column`."""
    length: int | None
    mean: float
    low: float | None
    high: float | None
    n: int
    values: tuple[float | None, ...]
    """The value of each seed of the row, in order; None where the seed has none."""


@dataclass(frozen=True)
class Row:
    """One entry of a board.

    Tier and rank interval are None where the entry is not ranked, or has no value in the column that orders entries.
    """

    entry: str
    tier: int | None
    """One more than the largest tier number among the entries that are significantly better, 1 if there are none."""
    rank_interval: tuple[int, int] | None
    """The best and the worst rank that the entry may have."""
    better_than: tuple[str, ...]
    """The entries that this one is significantly better than."""
    against: Against | None
    """The difference to the baseline; None for the baseline itself, and where there is nothing to compare."""
    seeds: tuple[int, ...]
    diverged: tuple[int, ...]
    """Seeds whose training diverged, on any task."""
    looks_ahead: tuple[int, ...]
    """Seeds whose answers change with what comes after them, on any task. An entry with such a seed is not ranked."""
    not_finite: tuple[int, ...]
    """Seeds with answers that are not finite although the training did not diverge. An entry with such a seed is not ranked."""
    not_fitted: tuple[int, ...]
    """Seeds that have not fitted some task; :func:`lgbench.results.fit.threshold` has the rule."""
    not_fitted_tasks: dict[str, int]
    """How many seeds have not fitted each task. Tasks that all seeds have fitted are left out."""
    effective_length: int | None
    """The longest length up to which the mean is better than the metric's threshold: 0 if none is, None without a threshold."""
    effective_multiple: float | None
    """The effective length in training lengths."""
    cells: tuple[Cell, ...]

    def cell(self, kind: str, length: int | None = None) -> Cell | None:
        """The cell of a column, None where the entry has no value there."""
        return self._by_column.get((kind, length))

    @cached_property
    def _by_column(self) -> dict[Column, Cell]:
        return {(cell.kind, cell.length): cell for cell in self.cells}


@dataclass(frozen=True)
class Board:
    """Entries on one family or task, by one metric, best mean first. Task, protocol and metric have one version each."""

    name: str
    metric: Metric
    task_version: int
    protocol: ProtocolUse
    tasks: int
    train_length: int
    chance: tuple[Level, ...]
    """The chance level in each column where it is known."""
    rows: tuple[Row, ...]
    incomplete: tuple[str, ...]
    """A sentence for each entry and seed that is left out because it lacks runs on tasks of the family."""
    unsound: tuple[str, ...]
    """A sentence for each entry that is not ranked because its answers cannot be trusted."""
    lacking: dict[str, int]
    """By entry, how many of its seeds have runs but lack this metric."""
    baseline: str
    """The entry that the others are compared with."""
    learning_rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """By entry and task, the learning rates that tuning chose; one, unless runs of several results folders are together."""
    ranked_by: str = OOD[0]
    """The kind of the column that orders entries: OOD; ID where nothing OOD was measured, or where no model was fitted."""

    @property
    def compared(self) -> bool:
        """Whether any entry is compared with the baseline."""
        return any(row.against for row in self.rows)

    @property
    def lengths(self) -> list[int]:
        """The lengths from the training length on, which tables show one by one."""
        return [length for length in self.all_lengths if length >= self.train_length]

    @property
    def all_lengths(self) -> list[int]:
        """Every length at which any entry has a value."""
        return sorted({c.length for row in self.rows for c in row.cells if c.length is not None})

    def chance_level(self, kind: str, length: int | None = None) -> float | None:
        """The chance level in a column, None where it is unknown."""
        return next((level.mean for level in self.chance if (level.kind, level.length) == (kind, length)), None)


def chance_levels(chance: Models) -> tuple[Level, ...]:
    """The chance level in each column."""
    return tuple(Level(kind, length, rounded(values.item())) for (kind, length), values in chance.columns.items())


def ranked_rows(models: Models, metric: Metric, train_length: int, not_fitted: NotFitted, baseline: str) -> tuple[Row, ...]:
    """The rows of a board, best mean first; by name where no value is better than another."""
    cells, standing = _cells(models, metric), _standings(models, metric) if metric.ranks else {}
    ranked = list(standing)
    differences = against(models, metric, baseline, ranked)
    rows = []
    for entry in _in_order(models, metric):
        seeds, own = models.seeds_of(entry), standing.get(entry)
        lost = {task: set(seeds) & found for task, found in sorted(not_fitted.get(entry, {}).items())}
        effective = _effective(cells[entry], metric)
        rows.append(
            Row(
                entry=entry,
                tier=own.tier if own else None,
                rank_interval=(own.best_rank, own.worst_rank) if own else None,
                better_than=tuple(ranked[other] for other in own.better_than) if own else (),
                against=differences.get(entry),
                seeds=seeds,
                diverged=tuple(seed for seed in seeds if (entry, seed) in models.diverged),
                looks_ahead=tuple(seed for seed in seeds if (entry, seed) in models.looks_ahead),
                not_finite=tuple(seed for seed in seeds if (entry, seed) in models.not_finite),
                not_fitted=tuple(sorted(set().union(*lost.values()))),
                not_fitted_tasks={task: len(own) for task, own in lost.items() if own},
                effective_length=effective,
                effective_multiple=_multiple(effective, train_length),
                cells=tuple(cells[entry].values()),
            )
        )
    return tuple(rows)


def unsound(models: Models) -> tuple[str, ...]:
    """A sentence for each entry that cannot be ranked."""
    found = ((entry, models.unsound(entry)) for entry in models.entries)
    return tuple(f"{entry} is not ranked: {reason}" for entry, reason in found if reason)


def _in_order(models: Models, metric: Metric) -> list[str]:
    """Entries by their mean in the column that orders them, then by the ID mean, then by name.

    Those without a mean are behind the others, and those that cannot be ranked are last.
    """

    def key(entry: str) -> tuple[bool, float, float, str]:
        columns = (models.ranked_by, ID)
        means = [_signed_mean(models, metric, entry, column) if metric.ranks else 0.0 for column in columns]
        return models.unsound(entry) is not None, means[0], means[1], entry

    return sorted((entry for entry in models.entries if models.seeds_of(entry)), key=key)


def _signed_mean(models: Models, metric: Metric, entry: str, column: Column) -> float:
    """The mean over seeds, with the sign that makes lower better; infinite where there is none. It has all its digits."""
    if column not in models.columns:
        return np.inf
    mean = mean_of_known(models.column(column, [entry])).round(12).item()
    return np.inf if np.isnan(mean) else metric.sign * mean


def _standings(models: Models, metric: Metric) -> dict[str, Standing]:
    """Of each entry that can be ranked and has a mean in the column that orders entries, in that order."""
    sound = [entry for entry in _in_order(models, metric) if models.unsound(entry) is None]
    ranked = [entry for entry in sound if np.isfinite(_signed_mean(models, metric, entry, models.ranked_by))]
    if not ranked:
        return {}
    return dict(zip(ranked, standings(metric.sign * models.column(models.ranked_by, ranked)), strict=True))


def _cells(models: Models, metric: Metric) -> dict[str, dict[Column, Cell]]:
    """By entry and column; without what has no value."""
    values = np.stack(list(models.columns.values()), 1)  # (E, C, S)
    counts, means = np.isfinite(values).sum(-1), mean_of_known(values)
    low, high = (np.clip(end, metric.lowest, metric.highest) for end in interval(values))
    short = rounded if metric.ranks else significant
    found: dict[str, dict[Column, Cell]] = {}
    for e, entry in enumerate(models.entries):
        own = np.isfinite(values[e]).any(0)  # seeds
        for c, column in enumerate(models.columns):
            if n := int(counts[e, c]):
                found.setdefault(entry, {})[column] = Cell(
                    kind=column[0],
                    length=column[1],
                    mean=short(means[e, c]),
                    low=short(low[e, c]) if n > 1 else None,
                    high=short(high[e, c]) if n > 1 else None,
                    n=n,
                    values=tuple(None if np.isnan(value) else short(value) for value in values[e, c, own]),
                )
    return found


def _effective(cells: Mapping[Column, Cell], metric: Metric) -> int | None:
    if metric.threshold is None:
        return None
    by_length = sorted((length, cell.mean) for (_, length), cell in cells.items() if length is not None)
    return effective_length([length for length, _ in by_length], [metric.reaches(mean) for _, mean in by_length])


def _multiple(length: int | None, train_length: int) -> float | None:
    if length is None:
        return None
    return round(length / train_length, DIGITS) if train_length else 0.0
