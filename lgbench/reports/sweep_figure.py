"""Figures against a setting: a panel for each column of a board. Panels of a board share the range of the vertical axis."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from lgbench.contracts import DIVERGED
from lgbench.errors import UsageError
from lgbench.reports.axes import SETTING_LABEL, Across
from lgbench.reports.figure import LINE, Panel, Spec, above_zero, assembled, panel_title, seeds_line
from lgbench.results.boards import BoardHeader
from lgbench.results.entries import short
from lgbench.results.sweeps import OF_TRAINING, SettingValue, Sweep, ordered

WIDE = 8
"""Ratio of largest to smallest value above which the horizontal axis is logarithmic."""


def sweep_figure(drawn: Sequence[Sweep], setting: str, entries: Sequence[str], loglog: bool = False) -> Spec:
    """Figure with a panel for each sweep. The order of `entries` decides colours, shapes and dashes.

    With `loglog`, both axes are logarithmic, and values at or below 0 are left out.
    """
    labels = dict(zip(entries, short(entries), strict=True))
    values = ordered(cell.value for sweep in drawn for entry in entries for cell in sweep.cells.get(entry, ()))
    across = axis(setting, values, loglog)
    boards = list({id(sweep.board): sweep.board for sweep in drawn}.values())
    columns = {tuple(_where(sweep)) for sweep in drawn}
    data = [_cells(sweep, labels, across, loglog) for sweep in drawn]
    panels = [
        Panel(
            metric=sweep.board.metric,
            title=[
                *(panel_title(sweep.board, boards) if len(boards) > 1 else []),
                *(_where(sweep) if len(columns) > 1 else []),
            ],
            across=across,
            marked=[value for value in values if not isinstance(value, str)],
            cells=cells,
            chance=_chance(sweep, across, loglog),
            about=_about(cells),
            shown=_shown(row for other, own in zip(drawn, data, strict=True) if other.board is sweep.board for row in own),
            logarithmic=loglog,
        )
        for sweep, cells in zip(drawn, data, strict=True)
    ]
    return assembled(panels, list(labels.values()), *_heading(drawn, boards, entries, columns))


def axis(setting: str, values: Sequence[SettingValue], loglog: bool = False) -> Across:
    """Horizontal axis of sorted values: categories if any value is text, logarithmic for numbers with a large ratio, else
    linear."""
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        if loglog:
            raise UsageError(f"--loglog draws numbers, and {setting} is {values[-1]!r} in some runs; leave --loglog out")
        return Across("setting", setting, categories=tuple(map(str, values)))
    if loglog and numbers[0] <= 0:
        raise UsageError(f"--loglog draws numbers above 0, and {setting} is {numbers[0]} in some runs; leave --loglog out")
    wide = numbers[0] > 0 and numbers[-1] > WIDE * numbers[0]
    return Across("setting", setting, "log" if wide or loglog else "linear", label=SETTING_LABEL)


def _cells(sweep: Sweep, labels: Mapping[str, str], across: Across, loglog: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        dict(entry=entry, label=labels[entry], setting=_placed(cell.value, across))
        | dict(mean=cell.mean, low=cell.low, high=cell.high, n=cell.n, chance=sweep.chance.get(cell.value))
        for entry, cells in sweep.cells.items()
        if entry in labels
        for cell in cells
    ]
    return above_zero(found) if loglog else found


def _chance(sweep: Sweep, across: Across, loglog: bool) -> list[dict[str, Any]]:
    """Rows of the chance level by setting, empty if unknown."""
    levels = sweep.chance.items()
    return [{"setting": _placed(value, across), "mean": level} for value, level in levels if level > 0 or not loglog]


def _placed(value: SettingValue, across: Across) -> SettingValue:
    """Value on the axis; numbers on an axis of categories become text."""
    return str(value) if across.categories else value


def _about(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row with the ends of the horizontal axis and the values with a tick."""
    values = ordered(row["setting"] for row in cells)
    ends = {"shortest": values[0], "longest": values[-1]} if values else {}
    return [{"train_length": 0, **ends, "lengths": values}]


def _shown(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    """Smallest and largest number in all panels of a board."""
    values = [row[end] for row in rows for end in ("mean", "low", "high", "chance") if row[end] is not None]
    return [min(values), max(values)] if values else []


def _where(sweep: Sweep) -> list[str]:
    """Column of a board in words, such as "length 40, OOD"."""
    kind, length = sweep.column
    if sweep.column == OF_TRAINING:
        return []
    if length is None:
        return [f"{kind} mean"]
    trained = sweep.board.train_length
    return [f"length {length}" + (f", {'ID' if length <= trained else 'OOD'}" if trained else "")]


def _heading(
    drawn: Sequence[Sweep], boards: Sequence[BoardHeader], entries: Sequence[str], columns: Collection[tuple[str, ...]]
) -> tuple[str, list[str]]:
    first = boards[0]
    title, said = first.metric.headline, []
    said += [where for column in columns for where in column] if len(columns) == 1 else []
    if len(boards) == 1:
        title = f"{first.name}: {title}"
        over = "on any of" if first.metric.name == DIVERGED else "mean over"
        said += [f"{over} {first.tasks} tasks"] if first.tasks > 1 else []
        said += [f"protocol {first.protocol}", f"task version {first.task_version}"]
    else:
        said += [f"protocol {first.protocol}"] if len({board.protocol for board in boards}) == 1 else []
        said.append("the panels of each board share an axis" if len(columns) > 1 else "each panel has axes of its own")
    counts = {cell.n for sweep in drawn for entry in entries for cell in sweep.cells.get(entry, ())}
    return title, wrap(", ".join(said), LINE) + [seeds_line(counts)]
