"""Figures with a panel for each part of a board: curves against training steps by length, and curves against a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lgbench.contracts import DIVERGED
from lgbench.errors import UsageError
from lgbench.reports.figure import Panel, Spec, above_zero, assembled, by_label, heading, panel_title, seeds_line
from lgbench.reports.marks import SETTING_LABEL, STEP, Across
from lgbench.results.boards import BoardHeader
from lgbench.results.entries import short
from lgbench.results.sweeps import OF_TRAINING, SettingValue, Sweep, ordered
from lgbench.results.trainings import BoardSteps, StepCurves

WIDE = 8
"""Ratio of largest to smallest value above which the horizontal axis is logarithmic."""


class Part(NamedTuple):
    """Curves in one column of a board."""

    board: BoardHeader
    where: Sequence[str]
    """Column in words, such as "length 40, OOD"; empty for a number of a training."""
    cells: Sequence[Mapping[str, Any]]
    """Rows of the dataset in :class:`lgbench.reports.marks.Data`; `context_free` and `about` likewise."""
    context_free: Sequence[Mapping[str, Any]]
    ticks: Sequence[Any]
    about: Mapping[str, Any]


def step_marks(steps: Sequence[int]) -> list[int]:
    """Steps with a tick: the last step, and every second step before.

    >>> step_marks([1, 3, 7, 15, 31, 62, 125, 250, 500, 1000])
    [3, 15, 62, 250, 1000]
    """
    return list(steps[::-1][::2][::-1])


def step_document(steps: BoardSteps) -> dict[str, Any]:
    """Step curves of a board for the page. Points are lists of step, mean, low, high and n, half as long as objects."""
    return {
        str(length): {
            "context_free": curves.context_free,
            "axis": _about(curves.steps, step_marks(curves.steps)),
            "entries": {entry: [list(vars(cell).values()) for cell in own] for entry, own in curves.cells.items()},
        }
        for length, curves in steps.curves.items()
    }


def step_figure(found: Sequence[BoardSteps], entries: Mapping[str, int]) -> Spec:
    """Figure with a panel for each board and length. `entries` as in :func:`lgbench.reports.figure.figure`."""
    labels = dict(zip(entries, short(entries), strict=True))
    parts = [_step_part(each.board, curves, labels) for each in found for curves in each.curves.values()]
    metric = found[0].board.metric
    direction = f", {metric.direction}" if metric.ranks else ""
    return _figure(parts, STEP, by_label(labels, entries), f"{metric.label} while models train{direction}")


def _step_part(board: BoardHeader, curves: StepCurves, labels: Mapping[str, str]) -> Part:
    cells = [
        {"entry": entry, "label": labels[entry], **vars(cell), "context_free": curves.context_free}
        for entry, own in curves.cells.items()
        if entry in labels
        for cell in own
    ]
    steps = curves.steps
    context_free = (
        [] if curves.context_free is None else [{"step": step, "mean": curves.context_free} for step in (steps[0], steps[-1])]
    )
    ticks = step_marks(steps)
    return Part(board, [_at_length(board, curves.length)], cells, context_free, ticks, _about(steps, ticks))


def sweep_figure(drawn: Sequence[Sweep], setting: str, entries: Mapping[str, int], loglog: bool = False) -> Spec:
    """Figure with a panel for each sweep. `entries` as in :func:`lgbench.reports.figure.figure`.

    With `loglog`, both axes are logarithmic, and values at or below 0 are left out.
    """
    labels = dict(zip(entries, short(entries), strict=True))
    values = ordered(value for sweep in drawn for entry in entries for value in sweep.cells.get(entry, ()))
    across = axis(setting, values, loglog)
    ticks = [value for value in values if not isinstance(value, str)]
    parts = [_sweep_part(sweep, labels, across, ticks, loglog) for sweep in drawn]
    metric = drawn[0].board.metric
    over = "on any of" if metric.name == DIVERGED else "mean over"
    return _figure(parts, across, by_label(labels, entries), metric.headline, over, loglog)


def _sweep_part(sweep: Sweep, labels: Mapping[str, str], across: Across, ticks: Sequence[float], loglog: bool) -> Part:
    def placed(value: SettingValue) -> SettingValue:
        return str(value) if across.categories else value

    cells: list[dict[str, Any]] = [
        dict(entry=entry, label=labels[entry], setting=placed(value))
        | dict(mean=cell.mean, low=cell.low, high=cell.high, n=cell.n, context_free=sweep.context_free.get(value))
        for entry, own in sweep.cells.items()
        if entry in labels
        for value, cell in own.items()
    ]
    cells = above_zero(cells) if loglog else cells
    context_free = [
        {"setting": placed(value), "mean": level} for value, level in sweep.context_free.items() if level > 0 or not loglog
    ]
    kind, length = sweep.column
    where = f"{kind} mean" if length is None else _at_length(sweep.board, length)
    values = ordered(row["setting"] for row in cells)
    return Part(sweep.board, [] if sweep.column == OF_TRAINING else [where], cells, context_free, ticks, _about(values, values))


def axis(setting: str, values: Sequence[SettingValue], loglog: bool = False) -> Across:
    """Horizontal axis of sorted values: categories, logarithmic (with `loglog` or a large ratio of numbers), or linear."""
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        if loglog:
            raise UsageError(f"--loglog draws numbers, and {setting} is {values[-1]!r} in some runs; leave --loglog out")
        return Across("setting", setting, categories=tuple(map(str, values)))
    if loglog and numbers[0] <= 0:
        raise UsageError(f"--loglog draws numbers above 0, and {setting} is {numbers[0]} in some runs; leave --loglog out")
    wide = numbers[0] > 0 and numbers[-1] > WIDE * numbers[0]
    return Across("setting", setting, "log" if wide or loglog else "linear", label=SETTING_LABEL)


def _figure(
    parts: Sequence[Part], across: Across, labels: Mapping[str, int], title: str, over: str = "mean over", loglog: bool = False
) -> Spec:
    """Figure with a panel for each part. The vertical axes of a board's panels are equal, to compare the panels."""
    boards = list({id(part.board): part.board for part in parts}.values())
    columns = {tuple(part.where) for part in parts}
    panels = [
        Panel(
            metric=part.board.metric,
            title=[*(panel_title(part.board, boards) if len(boards) > 1 else []), *(part.where if len(columns) > 1 else [])],
            across=across,
            marked=part.ticks,
            cells=part.cells,
            context_free=part.context_free,
            about=[part.about],
            shown=_range([row for other in parts if other.board is part.board for row in other.cells]),
            logarithmic=loglog,
        )
        for part in parts
    ]
    where = parts[0].where if len(columns) == 1 else []
    title, subtitle = heading(boards, title, where, shared=len(columns) > 1, over=over)
    seeds = seeds_line({row["n"] for part in parts for row in part.cells})
    return assembled(panels, labels, title, [*subtitle, seeds])


def _at_length(board: BoardHeader, length: int) -> str:
    """Length, with ID or OOD relative to the training length, such as "length 40, OOD"."""
    trained = board.train_length
    return f"length {length}" + (f", {'ID' if length <= trained else 'OOD'}" if trained else "")


def _about(values: Sequence[Any], ticks: Sequence[Any]) -> dict[str, Any]:
    """Ends of the horizontal axis and values with a tick."""
    ends = {"shortest": values[0], "longest": values[-1]} if values else {}
    return {"train_length": 0, **ends, "lengths": ticks}


def _range(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Smallest and largest number of curves and intervals."""
    values = [row[end] for row in rows for end in ("mean", "low", "high", "context_free") if row[end] is not None]
    return [min(values), max(values)] if values else []
