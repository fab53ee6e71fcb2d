"""Rows of a run: all measurements of one model, in the schema of run files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lgbench.contracts import CURVE_METRICS, LEARNING_RATE, SOUNDNESS
from lgbench.experiment.contexts import board_lengths
from lgbench.experiment.experiment import Tested
from lgbench.experiment.record import ExperimentRecord
from lgbench.measurement.scores import VERSION, Score, of_source
from lgbench.results.run_schema import SCHEMA
from lgbench.training.models import Curve


@dataclass(frozen=True)
class Measured:
    """All numbers of one trained model."""

    scores: Sequence[Score]
    """Scores at the end of training."""
    points: Mapping[int, Sequence[Score]]
    """Scores during training, by step."""
    chance: Sequence[Score]
    """Context-free baseline of the task."""
    curve: Curve
    """Training curve of the population; without points for an external model."""
    index: int
    """Index of the model in the population."""
    diverged_step: int | None


def rows_of(experiment: Tested, measured: Measured) -> pa.Table:
    """Rows of a run file."""
    same = same_in_all_rows(experiment.record) | {"diverged_step": measured.diverged_step}
    scores = {experiment.train.steps: [*measured.scores, *measured.chance], **measured.points}
    rows = [*_scores(experiment, scores), *_curve_points(measured.curve, measured.index)]
    rows += _learning_rate(experiment.record)
    made_with = {weights: experiment.record.plugins_of(weights) for weights in {row["weights"] for row in rows}}
    return pa.Table.from_pylist([same | row | {"plugins": made_with[row["weights"]]} for row in rows], schema=SCHEMA)


def same_in_all_rows(record: ExperimentRecord) -> dict[str, Any]:
    """Columns with one value in all rows of a run, except `diverged_step`. `plugins` depends on the weights."""
    return {
        "run_id": record.run_id,
        "entry": record.entry,
        "task": record.task,
        "family": record.family,
        "task_version": record.task_version,
        "protocol": record.protocol.name,
        "protocol_version": record.protocol.version,
        "changes": list(record.protocol.changes),
        "seed": record.seed,
    }


def is_in_distribution(experiment: Tested, length: int) -> bool:
    """Whether a length is a training length."""
    return experiment.train.min_length <= length <= experiment.train.max_length


def _scores(experiment: Tested, by_step: Mapping[int, Sequence[Score]]) -> Iterator[dict[str, Any]]:
    versions = {measurement.name: measurement.version for measurement in experiment.measurements}
    versions |= dict.fromkeys(SOUNDNESS, VERSION)
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
            "in_distribution": is_in_distribution(experiment, score.length),
            "on_boards": score.length in on_boards or score.metric in of_strings,
        }


def _learning_rate(record: ExperimentRecord) -> list[dict[str, Any]]:
    """One row for a tuned learning rate, with the number of tried rates as n; none for a fixed rate."""
    if record.tuning is None:
        return []
    about = {"weights": "raw", "metric": LEARNING_RATE, "step": record.train.steps}
    return [about | {"value": record.train.lr, "n": len(record.tuning.tried)}]


def _curve_points(curve: Curve, index: int) -> Iterator[dict[str, Any]]:
    """Training curve of one model."""
    for point, (before, step) in enumerate(pairwise([0, *curve.steps])):
        for metric, values in zip(CURVE_METRICS, (curve.loss, curve.gradient_norm), strict=True):
            yield {"weights": "raw", "metric": metric, "step": step, "value": values[point, index].item(), "n": step - before}
