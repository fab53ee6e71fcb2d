"""Trackers: TensorBoard, MLflow, Weights & Biases and Trackio, as a plugin.

Their libraries are large and optional, so each is imported where its tracker begins a run.
"""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Tracker, hookimpl
from lgbench_trackers.with_mlflow import MLflow
from lgbench_trackers.with_tensorboard import TensorBoard
from lgbench_trackers.with_trackio import Trackio
from lgbench_trackers.with_wandb import WeightsAndBiases


@hookimpl
def lgbench_trackers() -> Iterable[Tracker]:
    return [MLflow(), TensorBoard(), Trackio(), WeightsAndBiases()]
