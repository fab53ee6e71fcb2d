"""Trainings of runs: the training curve, and single numbers to draw against a setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lgbench.contracts import CURVE_METRICS, DIVERGED, LOSS_VARIANCE, TRAINING_METRICS
from lgbench.experiment.record import ProtocolUse
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


LENGTH = 0
"""Placeholder for the length of values of a training."""


def largest_gradient_norm(training: TrainedRun) -> float:
    """Largest finite gradient norm over all steps, also for a diverged training."""
    return max((value for _, value in _finite(training, "gradient_norm")), default=nan)


def loss_variance(training: TrainedRun) -> float:
    """Variance of the points of the training loss over the last half of the steps, in square nats.

    A point is the mean over a fiftieth of the training. NaN for a diverged training, and for fewer than two points.
    """
    last = max((step for step, _ in training.curves.get("train_loss", ())), default=0)
    values = [value for step, value in _finite(training, "train_loss") if 2 * step > last]
    return nan if training.diverged_step is not None or len(values) < 2 else float(np.var(values, ddof=1))


def diverged(training: TrainedRun) -> float:
    """1 for a diverged training, otherwise 0."""
    return float(training.diverged_step is not None)


def _finite(training: TrainedRun, metric: str) -> list[tuple[int, float]]:
    return [(step, value) for step, value in training.curves.get(metric, ()) if value is not None and isfinite(value)]


def _metric(name: str, label: str, title: str, lower_is_better: bool | None = None, high: float | None = None) -> Metric:
    return Metric(name, 1, label, title, lower_is_better, 0.0, high, None, None, None, None)


NUMBERS: Mapping[str, tuple[Metric, Callable[[TrainedRun], float]]] = dict(
    zip(
        TRAINING_METRICS,
        (
            (_metric("gradient_norm", "max gradient norm", "largest gradient norm in training"), largest_gradient_norm),
            (_metric(LOSS_VARIANCE, "loss variance", "training loss variance, last half"), loss_variance),
            (_metric(DIVERGED, "diverged seeds", "share of seeds that diverged", True, 1.0), diverged),
        ),
        strict=True,
    )
)
"""Description and function of each number of a training, by name of the metric."""


def training_numbers(results: Database, models: pa.Table, metric: str) -> pa.Table:
    """Number of the training of every run, in the columns of sql/values.sql, for raw weights alone."""
    _, number = NUMBERS[metric]
    raw = {run.run_id: number(run) for run in trainings(results)}
    table = models.filter(pc.equal(models["weights"], "raw")).drop_columns(["weights"])
    table = table.append_column("value", pa.array([raw[run_id] for run_id in table["run_id"].to_pylist()], pa.float64()))
    same = {"metric_version": 1, "train_length": 0, "length": LENGTH}
    for name, constant in same.items():
        table = table.append_column(name, pa.repeat(pa.scalar(constant, pa.int32()), len(table)))
    for name in ("in_distribution", "diverged", "looks_ahead", "not_finite"):
        table = table.append_column(name, pa.repeat(pa.scalar(False), len(table)))
    return table.drop_columns(["run_id"])
