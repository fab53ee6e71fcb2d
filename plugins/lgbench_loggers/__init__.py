"""Loggers: TensorBoard, MLflow, Weights & Biases and Trackio, as a plugin.

Their libraries are large and optional, so each is imported where its logger begins a run.
"""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Logger, hookimpl
from lgbench_loggers.with_mlflow import MLflow
from lgbench_loggers.with_tensorboard import TensorBoard
from lgbench_loggers.with_trackio import Trackio
from lgbench_loggers.with_wandb import WeightsAndBiases


@hookimpl
def lgbench_loggers() -> Iterable[Logger]:
    return [MLflow(), TensorBoard(), Trackio(), WeightsAndBiases()]
