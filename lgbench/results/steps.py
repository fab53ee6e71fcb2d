"""Boards while models train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lgbench.experiment.record import MULTIPLES
from lgbench.results.boards import BoardHeader, Cell, cells_of
from lgbench.results.columns import OOD, models_and_context_free, rounded


@dataclass(frozen=True)
class StepCurves:
    """Curves of one board at one length, up to the end of training."""

    length: int
    context_free: float | None
    """Context-free baseline at the length, None if unknown."""
    cells: Mapping[str, tuple[Cell, ...]]
    """By entry, in the order of the steps, with the step in place of the length."""

    @property
    def steps(self) -> list[int]:
        """Every step with a value of any entry."""
        return sorted({cell.length for own in self.cells.values() for cell in own if cell.length is not None})


@dataclass(frozen=True)
class BoardSteps:
    """Curves of a board against training steps."""

    board: BoardHeader
    measured: tuple[int, ...]
    """Every length measured before the end of training, sorted."""
    curves: Mapping[int, StepCurves]
    """Curves by length, in the requested order."""


def board_steps(board: BoardHeader, rows: pa.Table, lengths: Sequence[int] = ()) -> BoardSteps:
    """Curves of one board at `lengths`, or at the default lengths, from rows of values.sql of every eval step."""
    measured = sorted(pc.unique(rows["length"]).to_pylist())
    curves: dict[int, StepCurves] = {}
    for length in [n for n in lengths if n in measured] if lengths else default_lengths(measured, board.train_length):
        own = rows.filter(pc.equal(rows["length"], length)).drop_columns(["length", "in_distribution"])
        models, context_free = models_and_context_free(own.rename_columns({"step": "length"}))
        found = cells_of(models, board.metric) if models.columns else {}  # means over all steps have no step
        if cells := {entry: tuple(cell for cell in by.values() if cell.length is not None) for entry, by in found.items()}:
            known = len(context_free.tasks) == board.tasks and OOD in context_free.columns
            curves[length] = StepCurves(length, rounded(context_free.columns[OOD].item()) if known else None, cells)
    return BoardSteps(board, tuple(measured), curves)


def default_lengths(measured: Sequence[int], trained: int) -> list[int]:
    """The training length and its multiples by 2, 4 and 8, each replaced by the longest measured length up to the multiple.

    >>> default_lengths([40, 64, 80, 128, 160], 40), default_lengths([16, 32, 63], 16), default_lengths([20, 50], 10)
    ([40, 80, 160], [16, 32, 63], [20, 50])
    """
    found: dict[int, None] = {}
    for multiple in MULTIPLES:
        below = [length for length in measured if length <= multiple * trained]
        found |= dict.fromkeys(below[-1:])
    return list(found) or list(measured)[:1]
