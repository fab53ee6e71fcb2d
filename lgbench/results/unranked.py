"""Boards before anything is ranked: the values of each, and on which of them longer inputs tell nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from lgbench.results.boards import Board
from lgbench.results.columns import OOD, Models, mean_of_known
from lgbench.results.fit import NotFitted, not_fitted


class Key(NamedTuple):
    """Everything that a board has one of."""

    name: str
    task_version: int
    protocol: int
    """The number of the protocol in the table `protocols`."""
    metric_version: int


class Unranked(NamedTuple):
    """A board that has no rows yet, and the values that its rows are made from."""

    key: Key
    about: Board
    models: Models
    chance: Models
    """The chance level, as one entry with one seed; without tasks where it is unknown."""


def rows_by_board(values: pa.Table) -> Iterator[tuple[Key, pa.Table]]:
    """The rows of each board, which follow each other."""
    names = list(Key._fields)
    start = 0
    every = values.rename_columns(["name", *names[1:], *values.column_names[len(names) :]])
    for row in every.group_by(names, use_threads=False).aggregate([([], "count_all")]).to_pylist():
        yield Key(*(row[name] for name in names)), every.slice(start, row["count_all"])
        start += row["count_all"]


def seeds_not_fitted(measured: Sequence[Unranked]) -> Mapping[tuple[Any, ...], NotFitted]:
    """By family or task, version and protocol. Where several versions of the metric are measured, the newest one counts."""
    judged: dict[tuple[Any, ...], dict[tuple[str, str, int], bool]] = defaultdict(dict)
    for each in reversed(measured):
        judged[each.key[:3]] |= not_fitted(each.models, each.about.metric, each.chance)
    found: dict[tuple[Any, ...], dict[str, dict[str, set[int]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(set)))
    for place, own in judged.items():
        for (entry, task, seed), lost in own.items():
            if lost:
                found[place][entry][task].add(seed)
    return found


def unlearned(measured: Sequence[Unranked], lost: Mapping[tuple[Any, ...], NotFitted]) -> set[tuple[Any, ...]]:
    """The boards of one task that no seed of any entry has fitted, and where no entry beats chance on longer inputs either."""
    found, seen = set(), set()
    for each in measured:
        key, models = each.key[:3], each.models
        if key in seen or len(models.tasks) > 1:
            continue  # of several versions of the metric, the newest comes first
        seen.add(key)
        (task,) = models.tasks
        fitted = (set(models.seeds_of(e)) - lost.get(key, {}).get(e, {}).get(task, set()) for e in models.entries)
        if not any(fitted) and not _beats_chance(each):
            found.add(key)
    return found


def _beats_chance(board: Unranked) -> bool:
    """Whether the OOD mean of any entry is better than that of chance."""
    if OOD not in board.models.columns or OOD not in board.chance.columns:
        return False
    sign = board.about.metric.sign
    level = sign * mean_of_known(board.chance.columns[OOD][0])
    return bool((sign * mean_of_known(board.models.columns[OOD]) < level).any())
