"""Trainings of runs: the training curve, and boards while models train."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lgbench.contracts import CURVE_METRICS
from lgbench.experiment.record import MULTIPLES, ProtocolUse
from lgbench.results.boards import BoardHeader, cells_of
from lgbench.results.columns import BoardValues, rounded
from lgbench.results.database import Database, packaged
from lgbench.results.metrics import Metric


class TrainedRun(NamedTuple):
    """A run with its training curve."""

    run_id: str
    task: str
    task_version: int
    seed: int
    diverged_step: int | None
    protocol: ProtocolUse
    entry: str
    """Name of the raw weights on boards."""
    curves: Mapping[str, Sequence[tuple[int, float | None]]]
    """Steps with values, in order, by metric of the training curve."""


def trainings(results: Database) -> Iterator[TrainedRun]:
    """Every run, once, even if several files hold copies."""
    for *about, protocol, entry, curves in results.rows(packaged("trainings"), {"curves": list(CURVE_METRICS)}):
        points = {metric: [(point["step"], point["value"]) for point in own] for metric, own in (curves or {}).items()}
        run_id, task, task_version, seed, diverged_step = about
        yield TrainedRun(run_id, task, task_version, seed, diverged_step, results.protocols[protocol], entry, points)


@dataclass(frozen=True)
class StepCell:
    """Mean over n seeds after a number of steps, and its 95 % interval, None for one seed."""

    step: int
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class StepCurves:
    """Curves of one board at one length, up to the end of training."""

    length: int
    context_free: float | None
    """Context-free baseline at the length, None if unknown."""
    cells: Mapping[str, tuple[StepCell, ...]]
    """By entry, in the order of the steps."""

    @property
    def steps(self) -> list[int]:
        """Every step with a value of any entry."""
        return sorted({cell.step for own in self.cells.values() for cell in own})


@dataclass(frozen=True)
class BoardSteps:
    """Curves of a board against training steps."""

    board: BoardHeader
    measured: tuple[int, ...]
    """Every length measured before the end of training, sorted."""
    curves: Mapping[int, StepCurves]
    """Curves by length, in the requested order."""


def board_steps(board: BoardHeader, rows: pa.Table, lengths: Sequence[int] = ()) -> BoardSteps:
    """Curves of one board at `lengths`, or at the default lengths, from the rows of steps.sql."""
    measured = sorted(pc.unique(rows["length"]).to_pylist())
    curves: dict[int, StepCurves] = {}
    for length in [n for n in lengths if n in measured] if lengths else default_lengths(measured, board.train_length):
        own = rows.filter(pc.equal(rows["length"], length))
        of_context_free = pc.is_null(own["entry"])
        if cells := _cells(_by_step(own.filter(pc.invert(of_context_free))), board.metric):
            curves[length] = StepCurves(length, _context_free(own.filter(of_context_free), board.tasks), cells)
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


def _by_step(rows: pa.Table) -> BoardValues:
    """Values with the step in place of the length."""
    no = pa.repeat(pa.scalar(False), len(rows))
    columns = {name: rows[name] for name in ("entry", "seed", "task", "value")}
    columns |= {"length": rows["step"]} | dict.fromkeys(("in_distribution", "diverged", "not_causal", "not_finite"), no)
    return BoardValues.of_table(pa.table(columns))


def _cells(models: BoardValues, metric: Metric) -> dict[str, tuple[StepCell, ...]]:
    """Cells by entry, for steps with a seed that has a value on every task."""
    if not models.columns:
        return {}
    found = {}
    for entry, own in cells_of(models, metric).items():
        steps = [(step, cell) for (_, step), cell in own.items() if step is not None]  # not the means over steps
        found[entry] = tuple(StepCell(step, cell.mean, cell.low, cell.high, cell.n) for step, cell in steps)
    return found


def _context_free(rows: pa.Table, tasks: int) -> float | None:
    """Context-free baseline, mean over the tasks of a board; None if unknown for any task."""
    levels: Iterable[tuple[str, float | None]] = zip(rows["task"].to_pylist(), rows["value"].to_pylist(), strict=True)
    known = {task: value for task, value in levels if value is not None and np.isfinite(value)}
    return rounded(float(np.mean(list(known.values())))) if known and len(known) == tasks else None
