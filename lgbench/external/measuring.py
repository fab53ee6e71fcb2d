"""`lgbench.evaluate_model`: measuring a model that lgbench did not train."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from lgbench.errors import LgbenchError, RunFailed, RunFileError, UsageError
from lgbench.execution import provenance
from lgbench.execution.device import full_float32
from lgbench.execution.executor import located
from lgbench.execution.runner import loaded_plugin, require_writable
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry
from lgbench.external.models import Model, asked, described, device_of, name_of
from lgbench.external.planning import External, Order, planned
from lgbench.measurement.chance import chance
from lgbench.measurement.evaluate import evaluate
from lgbench.measurement.score import Score
from lgbench.measurement.soundness import reasons
from lgbench.results import run_files
from lgbench.results.external_models import ExternalModel
from lgbench.results.footers import digest
from lgbench.results.metrics import descriptions
from lgbench.results.rows import Measured, rows_of
from lgbench.training.curve import NO_CURVE

RAW = "raw"


def evaluate_model(
    model: Model,
    task: str,
    *,
    lengths: Sequence[int] | None = None,
    name: str | None = None,
    seed: int = 0,
    device: str | None = None,
    set: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    results: str | Path | None = None,
) -> pa.Table:
    """Measure any model on a task, as lgbench measures those that it trains, and return the rows, as :func:`lgbench.run` does.

    `model` is a module, or a function, from inputs (B, T) int64 or (B, T, F) float32 to logits (B, A, V). A is T, or 1 where
    the task asks for one answer. A module is in evaluation mode meanwhile. `lengths` are those that boards show, by default
    those of the protocol `standard`; the contexts are those of its runs with the same seed. `device` is by default the one
    that the module is on, and the CPU for a function. `set` changes evaluate.contexts, evaluate.strings, evaluate.max_length,
    train.min_length and train.max_length; the last two say which lengths the model was trained on, by default the task's.

    With a folder `results`, the rows are a run file there, too, under the protocol `external`. Boards show it
    apart from models that lgbench trained, and nobody can submit or verify it. The model's `name` is its identity: several
    trainings of one model have one name and several seeds. By default the name is that of the class or the function.

    Raises UsageError for what cannot be asked, and where `results` has other numbers of a model with this name and seed;
    RunFailed, with its cause, where the model fails.
    """
    changes = {key: str(value) for key, value in (set or {}).items()}
    registry = Registry.load(files=[Path(file) for file in plugins])
    whole = planned(Order(name_of(model) if name is None else name, task, lengths, seed, changes), registry)
    folder = None if results is None else Path(results)
    if folder is not None:
        require_writable(folder)
    started, on = time.perf_counter(), device_of(model, device)
    scores = _scores(model, whole, on)
    for reason in reasons(scores, diverged=False):
        warnings.warn(f"{whole.record.title}: {reason}, so boards do not rank it", stacklevel=2)
    level = chance(whole.task, whole.measurements, whole.train, whole.evaluate)
    rows = rows_of(whole, Measured(scores, {}, level, NO_CURVE, 0, None))
    if folder is not None:
        footer = _footer(whole, described(model), registry.loaded(), on, time.perf_counter() - started)
        _file(folder, whole, rows, footer)
    return rows


def _scores(model: Model, whole: External, device: torch.device) -> list[Score]:
    name = whole.record.entry
    try:
        with full_float32(), asked(model, name, whole.task.signature, device) as predict:
            return evaluate(whole, {RAW: predict}, device)
    except LgbenchError:
        raise
    except Exception as error:  # a stranger's model may raise anything
        raise RunFailed(f"{whole.record.title} failed: {located(error)}") from error


def _footer(
    whole: External, model: ExternalModel, loaded: Sequence[Distribution], device: torch.device, seconds: float
) -> dict[str, Any]:
    return {
        "experiment": asdict(whole.record),
        "plugins": [loaded_plugin(distribution, whole.took_part).content for distribution in loaded],
        "measurements": descriptions(whole.measurements),
        "execution": {"population": 1, "compiled": False, "resumed": False},
        "environment": provenance.environment(device),
        "seconds": {"train": 0.0, "total": seconds},
        **model.field,
    }


def _file(folder: Path, whole: External, rows: pa.Table, footer: Mapping[str, Any]) -> None:
    """Write the run file where there is none of its name. Raises UsageError where there is one with other numbers."""
    name = run_files.name_for(whole.record)
    run_files.write(folder / name, rows, footer)
    try:
        there = digest({}, run_files.read(folder / name))
    except RunFileError as error:
        raise RunFileError(f"{folder} has no whole run file of the name {name}: remove it there ({error})") from error
    if there != digest({}, rows):
        record = whole.record
        raise UsageError(
            f"{folder} has other numbers of a model with the name {record.entry} and the seed {record.seed} on {record.task}: "
            "give this model another name or seed, or name another folder"
        )
