"""Figures with a panel for each part of a board: curves against training steps by length, and curves against a setting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from lgbench.contracts import DIVERGED
from lgbench.errors import UsageError
from lgbench.reports.figure import LINE, Panel, Spec, above_zero, assembled, panel_title, seeds_line
from lgbench.reports.marks import SETTING_LABEL, STEP, Across
from lgbench.results.boards import BoardHeader
from lgbench.results.entries import short
from lgbench.results.steps import BoardSteps, StepCurves
from lgbench.results.sweeps import OF_TRAINING, SettingValue, Sweep, ordered


def _step_cells(curves: StepCurves, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of the curves, for entries with a label."""
    return [
        {"entry": entry, "label": labels[entry], **vars(cell), "chance": curves.chance}
        for entry, own in curves.cells.items()
        if entry in labels
        for cell in own
    ]


def _step_chance(curves: StepCurves) -> list[dict[str, Any]]:
    """Rows of the chance level at both ends of the axis, empty if unknown."""
    ends = (curves.steps[0], curves.steps[-1])
    return [] if curves.chance is None else [{"step": step, "mean": curves.chance} for step in ends]


def _step_about(curves: StepCurves) -> list[dict[str, Any]]:
    """One row with the ends of the horizontal axis and the steps with a tick."""
    steps = curves.steps
    return [{"train_length": 0, "shortest": steps[0], "longest": steps[-1], "lengths": step_marks(steps)}]


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
            "chance": curves.chance,
            "axis": _step_about(curves)[0],
            "entries": {entry: [list(vars(cell).values()) for cell in own] for entry, own in curves.cells.items()},
        }
        for length, curves in steps.curves.items()
    }


class AtLength(NamedTuple):
    """Curves of a board at one length."""

    board: BoardHeader
    curves: StepCurves

    @property
    def where(self) -> str:
        """Length, with ID or OOD relative to the training length."""
        trained = self.board.train_length
        return f"length {self.curves.length}" + (f", {'ID' if self.curves.length <= trained else 'OOD'}" if trained else "")


def at_lengths(found: Sequence[BoardSteps], lengths: Sequence[int]) -> list[AtLength]:
    """Curves of all boards at the requested lengths. Raises UsageError for a length without measurements on any board."""
    measured = sorted({length for steps in found for length in steps.measured})
    for length in lengths:
        if length not in measured:
            known = ", ".join(map(str, measured))
            raise UsageError(f"length {length} was not measured while models trained; measured: {known}")
    return [AtLength(steps.board, curves) for steps in found for curves in steps.curves.values()]


def step_figure(drawn: Sequence[AtLength], entries: Sequence[str]) -> Spec:
    """Figure with a panel for each board and length. The order of `entries` decides colours, shapes and dashes."""
    labels = dict(zip(entries, short(entries), strict=True))
    boards = list(dict.fromkeys(id(each.board) for each in drawn))
    first = {id(each.board): each.board for each in drawn}
    several = [first[board] for board in boards]
    panels = [_step_panel(each, drawn, labels, several) for each in drawn]
    return assembled(panels, list(labels.values()), *_step_heading(drawn, several, entries))


def _step_panel(each: AtLength, drawn: Sequence[AtLength], labels: Mapping[str, str], boards: Sequence[BoardHeader]) -> Panel:
    of_board = [row for other in drawn if other.board is each.board for row in _step_cells(other.curves, labels)]
    values = [row[end] for row in of_board for end in ("mean", "low", "high") if row[end] is not None]
    values += [row["chance"] for row in of_board if row["chance"] is not None]
    named = panel_title(each.board, boards) if len(boards) > 1 else []
    return Panel(
        metric=each.board.metric,
        title=[*named, each.where],
        across=STEP,
        marked=step_marks(each.curves.steps),
        cells=_step_cells(each.curves, labels),
        chance=_step_chance(each.curves),
        about=_step_about(each.curves),
        shown=[min(values), max(values)] if values else [],
    )


def _step_heading(drawn: Sequence[AtLength], boards: Sequence[BoardHeader], entries: Sequence[str]) -> tuple[str, list[str]]:
    first = boards[0]
    direction = f", {first.metric.direction}" if first.metric.ranks else ""
    title = f"{first.metric.label} while models train{direction}"
    said = []
    if len(boards) == 1:
        title = f"{first.name}: {title}"
        said += [drawn[0].where] if len(drawn) == 1 else []
        said += [f"mean over {first.tasks} tasks"] if first.tasks > 1 else []
        said += [f"protocol {first.protocol}", f"task version {first.task_version}"]
    else:
        said += [f"protocol {first.protocol}"] if len({board.protocol for board in boards}) == 1 else []
        said.append("the panels of each board share an axis")
    counts = {cell.n for each in drawn for entry in entries for cell in each.curves.cells.get(entry, ())}
    return title, wrap(", ".join(said), LINE) + [seeds_line(counts)]


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
    columns = {tuple(_sweep_where(sweep)) for sweep in drawn}
    data = [_sweep_cells(sweep, labels, across, loglog) for sweep in drawn]
    panels = [
        Panel(
            metric=sweep.board.metric,
            title=[
                *(panel_title(sweep.board, boards) if len(boards) > 1 else []),
                *(_sweep_where(sweep) if len(columns) > 1 else []),
            ],
            across=across,
            marked=[value for value in values if not isinstance(value, str)],
            cells=cells,
            chance=_sweep_chance(sweep, across, loglog),
            about=_sweep_about(cells),
            shown=_sweep_range(
                row for other, own in zip(drawn, data, strict=True) if other.board is sweep.board for row in own
            ),
            logarithmic=loglog,
        )
        for sweep, cells in zip(drawn, data, strict=True)
    ]
    return assembled(panels, list(labels.values()), *_sweep_heading(drawn, boards, entries, columns))


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


def _sweep_cells(sweep: Sweep, labels: Mapping[str, str], across: Across, loglog: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        dict(entry=entry, label=labels[entry], setting=_placed(cell.value, across))
        | dict(mean=cell.mean, low=cell.low, high=cell.high, n=cell.n, chance=sweep.chance.get(cell.value))
        for entry, cells in sweep.cells.items()
        if entry in labels
        for cell in cells
    ]
    return above_zero(found) if loglog else found


def _sweep_chance(sweep: Sweep, across: Across, loglog: bool) -> list[dict[str, Any]]:
    """Rows of the chance level by setting, empty if unknown."""
    levels = sweep.chance.items()
    return [{"setting": _placed(value, across), "mean": level} for value, level in levels if level > 0 or not loglog]


def _placed(value: SettingValue, across: Across) -> SettingValue:
    """Value on the axis; numbers on an axis of categories become text."""
    return str(value) if across.categories else value


def _sweep_about(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row with the ends of the horizontal axis and the values with a tick."""
    values = ordered(row["setting"] for row in cells)
    ends = {"shortest": values[0], "longest": values[-1]} if values else {}
    return [{"train_length": 0, **ends, "lengths": values}]


def _sweep_range(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    """Smallest and largest number in all panels of a board."""
    values = [row[end] for row in rows for end in ("mean", "low", "high", "chance") if row[end] is not None]
    return [min(values), max(values)] if values else []


def _sweep_where(sweep: Sweep) -> list[str]:
    """Column of a board in words, such as "length 40, OOD"."""
    kind, length = sweep.column
    if sweep.column == OF_TRAINING:
        return []
    if length is None:
        return [f"{kind} mean"]
    trained = sweep.board.train_length
    return [f"length {length}" + (f", {'ID' if length <= trained else 'OOD'}" if trained else "")]


def _sweep_heading(
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
