"""Leaderboards as data: mean and interval, rank, difference to the baseline, and fit of each entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lgbench.experiment.record import ProtocolUse
from lgbench.results import statistics
from lgbench.results.columns import DIGITS, ID, OOD, BoardValues, Column, ends, mean_of_known, rounded, significant
from lgbench.results.entries import without_hashes
from lgbench.results.metrics import Metric
from lgbench.results.statistics import CONFIDENCE, Exponent, Floats, Standing


@dataclass(frozen=True)
class Level:
    """Context-free baseline in one column of a board: the value of the best prediction without the context."""

    kind: str
    """As in :data:`lgbench.results.columns.Column`."""
    length: int | None
    mean: float


@dataclass(frozen=True)
class Cell:
    """One number of a board: the mean over n seeds and its 95 % interval, None for one seed."""

    kind: str
    """As in :data:`lgbench.results.columns.Column`."""
    length: int | None
    mean: float
    low: float | None
    high: float | None
    n: int
    values: tuple[float | None, ...]
    """Value of each seed of the row, in order; None for a missing value."""


@dataclass(frozen=True)
class Against:
    """Mean of entry - baseline over n common seeds, in the ranking column."""

    difference: float
    low: float | None
    """Ends of the 95 % interval, None with fewer than three seeds."""
    high: float | None
    n: int
    p: float
    """p of the paired t-test, corrected (Holm) for all entries compared with the baseline."""
    verdict: Literal["better", "worse"] | None
    """None for a difference without significance."""
    decided_by: tuple[int, ...]
    """Seeds that one of the two entries has not fitted, each of which changes the verdict when left out. Empty if a fitted seed
    does so, too."""


@dataclass(frozen=True)
class Fitted:
    """Seeds of an entry that have fitted every task, with the exact 95 % interval of their share (Clopper and Pearson 1934)."""

    seeds: int
    n: int
    low: float | None
    """Ends of the interval, None for one seed."""
    high: float | None


@dataclass(frozen=True)
class Row:
    """One entry of a board.

    Tier and rank interval are None for an entry that is not ranked, or has no value in the ranking column.
    """

    entry: str
    tier: int | None
    """At least the tier of the entry above, and more than the tier of every better entry. An entry without a seed that fits
    every task, or no better than the context-free baseline, is in tier 2 or lower, even if entries below it are in tier 1."""
    rank_interval: tuple[int, int] | None
    """Best and worst possible rank of the entry. An entry with best rank 1 may be the best."""
    better_than: tuple[str, ...]
    """Worse entries, with p below :data:`lgbench.results.statistics.SURE`."""
    against: Against | None
    """Difference to the baseline; None for the baseline itself, and without common seeds or a rank."""
    seeds: tuple[int, ...]
    diverged: tuple[int, ...]
    """Seeds with a diverged training on any task."""
    not_causal: tuple[int, ...]
    """Seeds with a model that is not causal on some task: answers depend on later inputs. One such seed excludes the entry from
    ranks."""
    not_finite: tuple[int, ...]
    """Seeds with non-finite answers after a training without divergence. One such seed excludes the entry from ranks."""
    not_fitted: tuple[int, ...]
    """Seeds without a fit of some task; the rule is :func:`threshold`."""
    not_fitted_tasks: dict[str, int]
    """Number of seeds without a fit, by task; tasks fitted by all seeds are left out."""
    fitted: Fitted | None
    """None where fits are unknown."""
    effective_length: int | None
    """Longest length up to which every mean passes the threshold of the metric: 0 if the first mean fails, None without a
    threshold, and if the context-free baseline passes it OOD."""
    effective_multiple: float | None
    """Effective length in training lengths."""
    cells: tuple[Cell, ...]
    protocol: ProtocolUse | None = None
    """Protocol of an own entry without a rank; None for that of the board."""

    def cell(self, kind: str, length: int | None = None) -> Cell | None:
        """Cell of a column, None without a value."""
        return next((cell for cell in self.cells if (cell.kind, cell.length) == (kind, length)), None)


def exponent(row: Row) -> Exponent | None:
    """Exponent of an entry over all lengths of its board; None without a fit for any seed."""
    cells = [cell for cell in row.cells if cell.kind == "length" and cell.length]
    if len(cells) < 2:
        return None
    values = np.array([[np.nan if v is None else v for v in cell.values] for cell in cells], dtype=np.float64)
    return statistics.mean_exponent(np.array([cell.length for cell in cells], dtype=np.float64), values)


@dataclass(frozen=True)
class BoardHeader:
    """Family or task, metric and protocol of a board, each in one version."""

    name: str
    metric: Metric
    task_version: int
    protocol: ProtocolUse
    tasks: int
    """Number of tasks."""
    only_task: str | None
    """Name of the task, None for several."""
    train_length: int

    @property
    def title(self) -> str:
        """Name of the board, with the only task of a family if its name is another, as in "dyck (dyck-2-5 alone)"."""
        alone = self.only_task and self.name not in (self.only_task, without_hashes(self.only_task))
        return f"{self.name} ({self.only_task} alone)" if alone else self.name


class BoardKey(NamedTuple):
    """Identity of a board of one metric."""

    name: str
    task_version: int
    protocol: int
    """Number in :attr:`lgbench.results.database.Database.protocols`."""
    metric_version: int

    @property
    def without_metric(self) -> tuple[str, int, int]:
        """Identity without the version of the metric."""
        return self[:3]


class MeasuredBoard(NamedTuple):
    """Values of a board before entries are ranked."""

    key: BoardKey
    header: BoardHeader
    models: BoardValues
    context_free: BoardValues
    """Context-free baseline as one entry with one seed; without tasks if unknown."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Context-free baseline in each column, if known for all tasks."""
        if self.context_free.tasks != self.models.tasks:
            return ()
        columns = self.context_free.columns
        return tuple(Level(kind, length, rounded(values.item())) for (kind, length), values in columns.items())


@dataclass(frozen=True)
class TunedRate:
    """Learning rate that tuning chose, of those tried."""

    chosen: float
    tried: tuple[float, ...]
    """Ascending."""

    @property
    def is_end(self) -> bool:
        """Whether the chosen rate is the lowest or the highest tried: a better one may lie beyond."""
        return self.chosen in (self.tried[0], self.tried[-1])


@dataclass(frozen=True)
class Board(BoardHeader):
    """Entries on one family or task, by one metric, best mean first."""

    context_free: tuple[Level, ...]
    """Context-free baseline in each column, if known."""
    rows: tuple[Row, ...]
    incomplete: tuple[str, ...]
    """A sentence for each entry with seeds left out because of missing runs on tasks of the family."""
    unsound: tuple[str, ...]
    """A sentence for each entry without a rank because of unsound answers."""
    lacking: dict[str, int]
    """Number of seeds with runs but without values of the metric, by entry."""
    baseline: str
    """Entry for comparison with all entries."""
    learning_rates: dict[str, dict[str, list[TunedRate]]] = field(default_factory=dict)
    """Tuned learning rates by entry and task; several only for runs of several results folders."""
    ranked_by: str = OOD[0]
    """Kind of the ranking column: OOD; ID without OOD measurements, or if no model was fitted."""
    own: tuple[str, ...] | None = None
    """Ranked entries with own runs, on a board with reference runs; None without reference runs."""
    unranked: tuple[Row, ...] = ()
    """Own entries of other protocols, at the lengths of the board, each named with its protocol."""

    @property
    def shown(self) -> tuple[Row, ...]:
        """All rows, those without a rank for their protocol last."""
        return *self.rows, *self.unranked

    @property
    def compared(self) -> bool:
        """Whether any entry is compared with the baseline."""
        return any(row.against for row in self.rows)

    @property
    def lengths(self) -> list[int]:
        """Lengths from the training length on: the columns of tables."""
        return [length for length in self.all_lengths if length >= self.train_length]

    @property
    def all_lengths(self) -> list[int]:
        """Every length with a value of any entry."""
        return sorted({c.length for row in self.rows for c in row.cells if c.length is not None})

    def context_free_level(self, kind: str, length: int | None = None) -> float | None:
        """Context-free baseline in a column, None if unknown."""
        return next((level.mean for level in self.context_free if (level.kind, level.length) == (kind, length)), None)


def ranked_rows(
    models: BoardValues, metric: Metric, train_length: int, context_free: Sequence[Level], baseline: str
) -> tuple[Row, ...]:
    """Rows of a board, best mean first; by name for a metric without ranks."""
    levels = {(level.kind, level.length): level.mean for level in context_free}
    cells, standing = cells_of(models, metric), _standings(models, metric, levels) if metric.ranks else {}
    has_effective = metric.threshold is not None and not metric.reaches(levels.get(OOD, np.nan))
    ranked = list(standing)
    differences = against(models, metric, baseline, ranked)
    rows = []
    for entry in _in_order(models, metric):
        seeds, own = models.seeds_of(entry), standing.get(entry)
        lost = {task: set(seeds) & found for task, found in sorted(models.not_fitted.get(entry, {}).items())}
        effective = _effective(cells[entry], metric) if has_effective else None
        rows.append(
            Row(
                entry=entry,
                tier=own.tier if own else None,
                rank_interval=(own.best_rank, own.worst_rank) if own else None,
                better_than=tuple(ranked[other] for other in own.better_than) if own else (),
                against=differences.get(entry),
                seeds=seeds,
                diverged=tuple(seed for seed in seeds if (entry, seed) in models.diverged),
                not_causal=tuple(seed for seed in seeds if (entry, seed) in models.not_causal),
                not_finite=tuple(seed for seed in seeds if (entry, seed) in models.not_finite),
                not_fitted=tuple(sorted(set().union(*lost.values()))),
                not_fitted_tasks={task: len(own) for task, own in lost.items() if own},
                fitted=_fitted(models, entry),
                effective_length=effective,
                effective_multiple=None if effective is None else train_length and round(effective / train_length, DIGITS),
                cells=tuple(cells[entry].values()),
            )
        )
    return tuple(rows)


def unsound(models: BoardValues) -> tuple[str, ...]:
    """A sentence for each unsound entry, which is not ranked."""
    found = ((entry, models.unsound(entry)) for entry in models.entries)
    return tuple(f"{entry} is not ranked: {reason}" for entry, reason in found if reason)


def _in_order(models: BoardValues, metric: Metric) -> list[str]:
    """Entries by the mean in the ranking column, then by the ID mean, then by name.

    Entries without a mean follow, and unsound entries are last.
    """

    def key(entry: str) -> tuple[bool, float, float, str]:
        columns = (models.ranked_by, ID)
        means = [_signed_mean(models, metric, entry, column) if metric.ranks else 0.0 for column in columns]
        return models.unsound(entry) is not None, means[0], means[1], entry

    return sorted((entry for entry in models.entries if models.seeds_of(entry)), key=key)


def _signed_mean(models: BoardValues, metric: Metric, entry: str, column: Column) -> float:
    """Mean over seeds, unrounded, with a sign for "lower is better"; infinite for a missing mean."""
    if column not in models.columns:
        return np.inf
    mean = mean_of_known(models.column(column, [entry])).round(12).item()  # the last bits of a sum would break ties
    return np.inf if np.isnan(mean) else metric.sign * mean


def _standings(models: BoardValues, metric: Metric, levels: Mapping[Column, float]) -> dict[str, Standing]:
    """Standing of each sound entry with a mean in the ranking column, best first."""
    sound = [entry for entry in _in_order(models, metric) if models.unsound(entry) is None]
    means = {entry: _signed_mean(models, metric, entry, models.ranked_by) for entry in sound}
    ranked = [entry for entry in sound if np.isfinite(means[entry])]
    if not ranked:
        return {}
    context_free = metric.sign * levels.get(models.ranked_by, metric.sign * np.inf)  # every mean beats an unknown baseline
    eligible = np.array([means[entry] < context_free and not models.never_fits(entry) for entry in ranked])
    return dict(zip(ranked, statistics.standings(metric.sign * models.column(models.ranked_by, ranked), eligible), strict=True))


def _fitted(models: BoardValues, entry: str) -> Fitted | None:
    if not (fits := models.fits(entry)):
        return None
    count = sum(fits.values())
    return Fitted(count, len(fits), *ends(*statistics.share_interval(count, len(fits))))


def cells_of(models: BoardValues, metric: Metric) -> dict[str, dict[Column, Cell]]:
    """Cells with a value, by entry and column."""
    values = np.stack(list(models.columns.values()), 1)  # (E, C, S)
    counts, means = np.isfinite(values).sum(-1), mean_of_known(values)
    low, high = (np.clip(end, metric.lowest, metric.highest) for end in statistics.interval(values))
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


def _effective(cells: Mapping[Column, Cell], metric: Metric) -> int:
    by_length = sorted((length, cell.mean) for (_, length), cell in cells.items() if length is not None)
    return statistics.effective_length([length for length, _ in by_length], [metric.reaches(mean) for _, mean in by_length])


def against(models: BoardValues, metric: Metric, baseline: str, ranked: Sequence[str]) -> dict[str, Against]:
    """Differences to the baseline, by ranked entry with a seed in common with the baseline, without the baseline itself."""
    if baseline not in ranked:
        return {}
    values = models.column(models.ranked_by, ranked)
    differences = values - values[list(ranked).index(baseline)]
    others = np.array([entry != baseline for entry in ranked]) & np.isfinite(differences).any(-1)
    names = [entry for entry, other in zip(ranked, others, strict=True) if other]
    found = statistics.paired_t(differences[others])
    lost = [failing(models, entry, baseline) for entry in names]
    decided = statistics.deciding_seeds(differences[others], lost, [models.seeds] * len(names))
    corrected, most = statistics.holm(found.p), metric.highest - metric.lowest
    return {
        entry: Against(
            rounded(found.mean[i]),
            *ends(found.low[i], found.high[i], most),
            n=int(found.seeds[i]),
            p=float(f"{corrected[i]:.3g}"),
            verdict=("better" if metric.sign * found.mean[i] < 0 else "worse") if corrected[i] < 1 - CONFIDENCE else None,
            decided_by=decided[i],
        )
        for i, entry in enumerate(names)
    }


def failing(models: BoardValues, *entries: str) -> NDArray[np.bool_]:
    """(S,): whether one of these entries has not fitted a seed."""
    fits = [models.fits(entry) or {} for entry in entries]
    return np.array([not all(own.get(seed, True) for own in fits) for seed in models.seeds])


def not_fitted(models: BoardValues, metric: Metric, context_free: BoardValues) -> dict[tuple[str, str, int], bool]:
    """Lack of a fit, by entry, task and seed with ID lengths.

    A fit has a mean within the metric's limit over the training range and over its upper half: short lengths alone can make a
    good mean, and tell nothing of longer ones. A seed without a defined value in the upper half has not fitted the task.
    """
    ran = (models.measured & models.in_distribution).any(-1)
    found: dict[tuple[str, str, int], bool] = {}
    for shortest in (0.0, 0.5):
        means, levels = id_means(models, shortest), id_means(context_free, shortest)
        level = dict(zip(context_free.tasks, levels[0, 0].tolist(), strict=True)) if context_free.tasks else {}
        for e, s, t in np.argwhere(ran):
            key = models.entries[e], models.tasks[t], models.seeds[s]
            limit = metric.limit(level.get(models.tasks[t]))
            if limit is not None:
                # "not <", because a NaN has not fitted.
                found[key] = found.get(key, False) or not metric.sign * means[e, s, t] < metric.sign * limit
    return found


def id_means(models: BoardValues, shortest: float) -> Floats:
    """Means of each task over its training lengths above `shortest`, a share of the longest: (E, S, T), NaN without values."""
    lengths = np.where(models.in_distribution, models.lengths, 0)
    chosen = lengths > shortest * lengths.max(-1, keepdims=True, initial=0)
    return mean_of_known(np.where(chosen, models.values, np.nan)).round(12)
