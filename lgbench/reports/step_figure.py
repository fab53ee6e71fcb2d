"""Curves against training steps: figures with a panel for each length of each board, and the data of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from lgbench.errors import UsageError
from lgbench.reports.axes import STEP
from lgbench.reports.figure import LINE, Panel, Spec, assembled, panel_title, seeds_line
from lgbench.results.boards import BoardHeader
from lgbench.results.entries import short
from lgbench.results.steps import BoardSteps, StepCurves


def cells(curves: StepCurves, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of the curves, for entries with a label."""
    return [
        {"entry": entry, "label": labels[entry], **vars(cell), "chance": curves.chance}
        for entry, own in curves.cells.items()
        if entry in labels
        for cell in own
    ]


def chance(curves: StepCurves) -> list[dict[str, Any]]:
    """Rows of the chance level at both ends of the axis, empty if unknown."""
    ends = (curves.steps[0], curves.steps[-1])
    return [] if curves.chance is None else [{"step": step, "mean": curves.chance} for step in ends]


def about(curves: StepCurves) -> list[dict[str, Any]]:
    """One row with the ends of the horizontal axis and the steps with a tick."""
    steps = curves.steps
    return [{"train_length": 0, "shortest": steps[0], "longest": steps[-1], "lengths": marked(steps)}]


def marked(steps: Sequence[int]) -> list[int]:
    """Steps with a tick: the last step, and every second step before.

    >>> marked([1, 3, 7, 15, 31, 62, 125, 250, 500, 1000])
    [3, 15, 62, 250, 1000]
    """
    return list(steps[::-1][::2][::-1])


def document(steps: BoardSteps) -> dict[str, Any]:
    """Step curves of a board for the page. Points are lists of step, mean, low, high and n, half as long as objects."""
    return {
        str(length): {
            "chance": curves.chance,
            "axis": about(curves)[0],
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
    panels = [_panel(each, drawn, labels, several) for each in drawn]
    return assembled(panels, list(labels.values()), *_heading(drawn, several, entries))


def _panel(each: AtLength, drawn: Sequence[AtLength], labels: Mapping[str, str], boards: Sequence[BoardHeader]) -> Panel:
    of_board = [row for other in drawn if other.board is each.board for row in cells(other.curves, labels)]
    values = [row[end] for row in of_board for end in ("mean", "low", "high") if row[end] is not None]
    values += [row["chance"] for row in of_board if row["chance"] is not None]
    named = panel_title(each.board, boards) if len(boards) > 1 else []
    return Panel(
        metric=each.board.metric,
        title=[*named, each.where],
        across=STEP,
        marked=marked(each.curves.steps),
        cells=cells(each.curves, labels),
        chance=chance(each.curves),
        about=about(each.curves),
        shown=[min(values), max(values)] if values else [],
    )


def _heading(drawn: Sequence[AtLength], boards: Sequence[BoardHeader], entries: Sequence[str]) -> tuple[str, list[str]]:
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
