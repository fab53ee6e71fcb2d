"""Sweeps: how good each entry is at several values of one setting, of runs that differ in nothing but that setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lgbench.contracts import DIVERGED
from lgbench.errors import UsageError
from lgbench.results.boards import Board
from lgbench.results.columns import OOD, Column, Models, Values, mean_of_known, rounded, significant
from lgbench.results.leaderboard import Results, named_chance
from lgbench.results.metrics import Metric
from lgbench.results.setting_values import SettingValue
from lgbench.results.statistics import Floats, interval, share_interval
from lgbench.results.sweep_rows import Asked, SweptRows, several, swept_rows
from lgbench.results.training_numbers import LENGTH, NUMBERS

OF_TRAINING: Column = ("length", LENGTH)
"""The column of numbers of a training."""


@dataclass(frozen=True)
class SweepCell:
    """The mean over n seeds at one value of the setting, and its 95 % interval, which is None for one seed."""

    value: SettingValue
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Sweep:
    """A line for each entry on one family or task, in one column of its boards."""

    board: Board
    """As in :class:`lgbench.results.sweep_rows.SweptRows`."""
    column: Column
    cells: Mapping[str, tuple[SweepCell, ...]]
    """By entry, in the order of the values."""
    chance: Mapping[SettingValue, float]
    """The chance level by value, where it is known."""

    @property
    def lines(self) -> list[str]:
        """The entries with several values, sorted."""
        return sorted(entry for entry, cells in self.cells.items() if len(cells) > 1)


def sweeps(results: Results, asked: Asked) -> list[Sweep]:
    """By family or task, protocol and column. Raises UsageError where a name is unknown, or no entry has several values.

    A sentence for what had to be left out is in `results.no_boards`.
    """
    if asked.lengths and asked.metric in NUMBERS:
        raise UsageError(f"{asked.metric} is one number of a training, and has no lengths: leave --length out")
    swept = swept_rows(results, asked)
    measured = sorted({length for own in swept for length in pc.unique(own.rows["length"]).to_pylist()})
    for length in asked.lengths:
        if length not in measured:
            raise UsageError(f"length {length} was not measured; measured: {', '.join(map(str, measured))}")
    columns: list[Column] = [("length", length) for length in asked.lengths] or [OOD]
    columns = [OF_TRAINING] if asked.metric in NUMBERS else columns
    found = [sweep for own in swept for sweep in _of_columns(results, own, columns, asked.setting) if sweep.lines]
    if not found:
        where = "above the training lengths; choose others with --length" if columns == [OOD] else "there"
        raise UsageError(f"no entry has {asked.metric} at several values of {asked.setting} {where}")
    return found


def _of_columns(results: Results, swept: SweptRows, columns: Sequence[Column], setting: str) -> list[Sweep]:
    cells: Mapping[Column, dict[str, list[SweepCell]]] = {column: defaultdict(list) for column in columns}
    levels: Mapping[Column, dict[SettingValue, float]] = {column: {} for column in columns}
    entries = several(swept.rows, "entry")
    for place in sorted(pc.unique(swept.rows["point"]).to_pylist()):
        value = swept.points[place]
        models, chance = _models(results, swept.rows.filter(pc.equal(swept.rows["point"], place)), f"{setting} {value}")
        for column in columns:
            for entry, cell in _cells(models, column, swept.board, value):
                cells[column][entry].append(cell)
            if column in chance.columns and len(chance.tasks) == swept.board.tasks:
                levels[column][value] = significant(chance.columns[column].item())
            results.no_boards.update(dict.fromkeys(_left_out(models, column, swept.board, entries, f"{setting} {value}")))
    return [
        Sweep(swept.board, column, {entry: tuple(own) for entry, own in cells[column].items()}, levels[column])
        for column in columns
    ]


def _models(results: Results, rows: pa.Table, at: str) -> tuple[Models, Models]:
    """The values at one point, and the chance level. Without both where they are too many."""
    of_chance = pc.is_null(rows["entry"])
    own, levels = Values.of_table(rows.filter(pc.invert(of_chance))), Values.of_table(named_chance(rows.filter(of_chance)))
    if reason := Models.too_many(own) or Models.too_many(levels):
        results.no_boards[f"everything with {at}, since {reason}"] = None
        own = levels = Values.of(())
    return Models.of(own), Models.of(levels)


def _cells(models: Models, column: Column, board: Board, value: SettingValue) -> Iterable[tuple[str, SweepCell]]:
    """By entry, over the seeds that have a value on every task of the board."""
    if len(models.tasks) < board.tasks or column not in models.columns:
        return
    seeds, around = _of_seeds(models.columns[column], board.metric)
    counts, means = np.isfinite(seeds).sum(-1), mean_of_known(seeds)
    low, high = (np.clip(end, board.metric.lowest, board.metric.highest) for end in around)
    short = rounded if board.metric.ranks else significant
    for place, entry in enumerate(models.entries):
        if n := int(counts[place]):
            ends = (short(low[place]), short(high[place])) if n > 1 else (None, None)
            yield entry, SweepCell(value, short(means[place]), ends[0], ends[1], n)


def _of_seeds(values: Floats, metric: Metric) -> tuple[Floats, tuple[Floats, Floats]]:
    """(E, S) and the ends of intervals. A seed diverged if it did on any task."""
    if metric == NUMBERS[DIVERGED][0]:
        seeds = np.where(np.isfinite(values), values > 0, np.nan)
        return seeds, share_interval(seeds)
    return values, interval(values)


def _left_out(models: Models, column: Column, board: Board, entries: Sequence[str], at: str) -> Iterable[str]:
    """A sentence for the seeds of each entry with a line that are not in its mean."""
    per_task = models.measured.any(-1)  # (E, S, T)
    any_task, complete = np.asarray(per_task.any(-1)), np.asarray(per_task.all(-1))
    if len(models.tasks) < board.tasks:
        complete = np.zeros_like(any_task)
    known = np.isfinite(models.columns[column]) if column in models.columns else np.zeros_like(complete)
    for place, entry in enumerate(models.entries):
        if entry not in entries:
            continue
        lacking = any_task[place] & ~complete[place]
        undefined = complete[place] & ~known[place]
        for lost, why in (
            (lacking, f"runs on all of the {board.tasks} tasks of {board.name}"),
            (undefined, f"a {board.metric.name} on {board.name}"),
        ):
            if lost.any():
                seeds = [str(seed) for seed, own in zip(models.seeds, lost, strict=True) if own]
                named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(seeds)}"
                yield f"{named} of {entry} with {at}, which {'lacks' if len(seeds) == 1 else 'lack'} {why}"
