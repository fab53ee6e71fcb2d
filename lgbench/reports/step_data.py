"""The datasets of a plot against training steps: the curves at one length, the chance level, and what the axes need to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lgbench.results.steps import BoardSteps, StepCurves


def cells(curves: StepCurves, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The curves of the entries that have a label."""
    return [
        {"entry": entry, "label": labels[entry], **vars(cell), "chance": curves.chance}
        for entry, own in curves.cells.items()
        if entry in labels
        for cell in own
    ]


def chance(curves: StepCurves) -> list[dict[str, Any]]:
    """The line of the chance level, empty where it is unknown."""
    ends = (curves.steps[0], curves.steps[-1])
    return [] if curves.chance is None else [{"step": step, "mean": curves.chance} for step in ends]


def about(curves: StepCurves) -> list[dict[str, Any]]:
    """One row: the ends of the horizontal axis, and the steps that are marked on it."""
    steps = curves.steps
    return [{"train_length": 0, "shortest": steps[0], "longest": steps[-1], "lengths": marked(steps)}]


def marked(steps: Sequence[int]) -> list[int]:
    """The steps that an axis marks: the last, and every second one before it.

    >>> marked([1, 3, 7, 15, 31, 62, 125, 250, 500, 1000])
    [3, 15, 62, 250, 1000]
    """
    return list(steps[::-1][::2][::-1])


def document(steps: BoardSteps) -> dict[str, Any]:
    """Everything of one board, for a page. A point is a list of step, mean, low, high and n: half as long as an object."""
    return {
        str(length): {
            "chance": curves.chance,
            "axis": about(curves)[0],
            "entries": {entry: [list(vars(cell).values()) for cell in own] for entry, own in curves.cells.items()},
        }
        for length, curves in steps.curves.items()
    }
