"""The datasets of a plot of one board: the curves of its entries, the chance level, and what the axes need to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lgbench.results.boards import Board


def cells(board: Board, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The curves of the entries that have a label."""
    levels = {row["length"]: row["mean"] for row in chance(board)}
    fields = ("length", "mean", "low", "high", "n")
    return [
        {"entry": row.entry, "label": labels[row.entry]}
        | {field: getattr(cell, field) for field in fields}
        | {"chance": levels.get(cell.length)}
        for row in board.rows
        if row.entry in labels
        for cell in row.cells
        if cell.kind == "length"
    ]


def above_zero(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that a logarithmic axis can show. An interval that reaches 0 ends at the smallest mean."""
    positive = [cell for cell in cells if cell["mean"] > 0]
    least = min((cell["mean"] for cell in positive), default=0.0)
    return [cell | {"low": least if cell["low"] is not None and cell["low"] <= 0 else cell["low"]} for cell in positive]


def chance(board: Board) -> list[dict[str, Any]]:
    """The curve of the chance level, empty where it is unknown."""
    levels = {length: board.chance_level("length", length) for length in board.all_lengths}
    return [{"length": length, "mean": level} for length, level in levels.items() if level is not None]


def about(board: Board) -> list[dict[str, Any]]:
    """One row: the training length, the ends of the horizontal axis, and the lengths that are marked on it."""
    lengths = board.all_lengths
    ends = {"shortest": lengths[0], "longest": lengths[-1]}
    return [{"train_length": board.train_length, **ends, "lengths": marked(lengths, board.train_length)}]


def marked(lengths: Sequence[int], trained: int) -> list[int]:
    """The lengths that an axis marks: all, but for a training length too near another one. The shading ends there anyway.

    >>> marked([16, 32, 40, 63], 40), marked([16, 32, 63], 32)
    ([16, 32, 63], [16, 32, 63])
    """
    crowded = any(trained != length and 2 * trained < 3 * length < 4.5 * trained for length in lengths)
    return [length for length in lengths if length != trained or not crowded or length in (lengths[0], lengths[-1])]
