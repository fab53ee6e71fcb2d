"""Rows of a run: all measurements of one model, in the schema of run files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lgbench.contracts import CURVE_METRICS, LEARNING_RATE, SOUNDNESS
from lgbench.experiment.contexts import board_lengths
from lgbench.experiment.experiment import Tested
from lgbench.experiment.record import ExperimentRecord, deciding
from lgbench.measurement.scores import VERSION, Score, of_source
from lgbench.results.file_format import SCHEMA
from lgbench.training.models import NO_CURVE, Curve


def rows_of(
    experiment: Tested,
    scores: Mapping[int, Sequence[Score]],
    curve: Curve = NO_CURVE,
    index: int = 0,
    diverged_step: int | None = None,
) -> pa.Table:
    """Rows of a run file, from all scores of a model by step, with the context-free baseline among those at the end.

    `curve` is the training curve of a population, and `index` the place of the model there.
    """
    rows = [*_scores(experiment, scores), *_curve_points(curve, index), *_learning_rate(experiment.record)]
    labels = {weights: labels_of(experiment.record, weights) for weights in {row["weights"] for row in rows}}
    diverged = {"diverged_step": diverged_step}
    return pa.Table.from_pylist([labels[row["weights"]] | diverged | row for row in rows], schema=SCHEMA)


def labels_of(record: ExperimentRecord, weights: str) -> dict[str, Any]:
    """Columns with one value in all rows of a run with the same weights, except `diverged_step`."""
    return {
        "run_id": record.run_id,
        "entry": record.entry,
        "task": record.task,
        "family": record.family,
        "task_version": record.task_version,
        "protocol": record.protocol.name,
        "protocol_version": record.protocol.version,
        "changes": list(record.protocol.changes),
        "plugins": deciding(record.plugins, weights),
        "seed": record.seed,
    }


def _scores(experiment: Tested, by_step: Mapping[int, Sequence[Score]]) -> Iterator[dict[str, Any]]:
    versions = {measurement.name: measurement.version for measurement in experiment.measurements}
    versions |= dict.fromkeys(SOUNDNESS, VERSION)
    first, last = experiment.train.min_length, experiment.train.max_length
    on_boards = set(board_lengths(experiment.task, experiment.train, experiment.evaluate))
    of_strings = {each.name for each in of_source("strings", experiment.task, experiment.measurements)}
    for step, score in ((step, score) for step, scores in by_step.items() for score in scores):
        yield {
            "weights": score.weights,
            "metric": score.metric,
            "metric_version": versions[score.metric],
            "step": step,
            "length": score.length,
            "layer": score.layer,
            "head": score.head,
            "value": score.value,
            "n": score.n,
            "in_distribution": first <= score.length <= last,
            "on_boards": score.length in on_boards or score.metric in of_strings,
        }


def _learning_rate(record: ExperimentRecord) -> Iterator[dict[str, Any]]:
    """One row for a tuned learning rate, with the number of tried rates as n; none for a fixed rate."""
    if record.tuning:
        about = {"weights": "raw", "metric": LEARNING_RATE, "step": record.train.steps}
        yield about | {"value": record.train.lr, "n": len(record.tuning.tried)}


def _curve_points(curve: Curve, index: int) -> Iterator[dict[str, Any]]:
    """Training curve of one model."""
    for point, (before, step) in enumerate(pairwise([0, *curve.steps])):
        for metric, values in zip(CURVE_METRICS, (curve.loss, curve.gradient_norm), strict=True):
            yield {"weights": "raw", "metric": metric, "step": step, "value": values[point, index].item(), "n": step - before}
