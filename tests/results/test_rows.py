"""The rows of a run stand once: what they say, for whoever writes them or makes them again."""

from __future__ import annotations

import pytest
import torch
import toys
from helpers.toy_registries import experiment_of

from lgbench.experiment.record import Evaluation, Training
from lgbench.measurement.scores import Score
from lgbench.results.file_format import SCHEMA
from lgbench.results.rows import labels_of, rows_of
from lgbench.training.models import Curve

TRAINING, EVALUATION = Training(7, 1, 0.1, 0.0, 0.1, 1, 2, 5), Evaluation(4, 4, 16)
CURVE = Curve([3, 7], torch.tensor([[1.0, 2.0], [0.5, 0.25]]), torch.tensor([[8.0, 9.0], [6.0, 7.0]]))


def rows(experiment, scores=(), curve=CURVE, index=0, diverged=None):
    return rows_of(experiment, {7: scores}, curve, index, diverged)


@pytest.fixture
def experiment():
    return experiment_of(toys.Largest(), TRAINING, EVALUATION, seed=3)


def test_rows_have_the_schema_of_run_files_and_the_experiment_in_each(experiment):
    found = rows(experiment, [Score("raw", "tvd", 4, 0.5, 9)])
    assert found.schema.equals(SCHEMA)
    same = {
        "run_id": experiment.run_id,
        "entry": "toy",
        "task": "toy-largest",
        "family": "toy-largest",
        "task_version": 1,
        "protocol": "quick",
        "protocol_version": 1,
        "changes": [],
        "plugins": [],
        "seed": 3,
    }
    assert labels_of(experiment.record, "raw") == same
    for row in found.to_pylist():
        assert row.items() >= same.items() and row["diverged_step"] is None


def test_a_score_says_its_length_and_whether_models_are_trained_on_it_and_boards_show_it(experiment):
    scores = [Score("raw", "tvd", length, length / 10, 9) for length in (2, 3, 5, 6, 8, 16)]
    found = [row for row in rows(experiment, scores).to_pylist() if row["length"]]
    told = {row["length"]: (row["value"], row["n"], row["in_distribution"], row["on_boards"]) for row in found}
    assert told == {
        2: (0.2, 9, True, True),
        3: (0.3, 9, True, False),
        5: (0.5, 9, True, True),
        6: (0.6, 9, False, False),
        8: (0.8, 9, False, True),
        16: (1.6, 9, False, True),
    }
    assert {(row["weights"], row["metric"], row["metric_version"], row["step"]) for row in found} == {("raw", "tvd", 1, 7)}


def test_boards_show_strings_at_the_lengths_at_which_there_are_some():
    """Of a language there may be none at a power of two."""
    experiment = experiment_of(toys.Even(), TRAINING, EVALUATION)
    scores = [Score("raw", metric, 7, 0.5, 4) for metric in ("tvd", "roc_auc")]
    found = {row["metric"]: row["on_boards"] for row in rows(experiment, scores).to_pylist() if row["length"]}
    assert found == {"tvd": False, "roc_auc": True}


@pytest.mark.parametrize("index", [0, 1])
def test_the_curve_is_that_of_one_model_and_each_point_says_the_steps_that_it_covers(experiment, index):
    found = rows(experiment, index=index).to_pylist()
    told = [(row["metric"], row["step"], row["n"], row["value"]) for row in found]
    assert told == [
        ("train_loss", 3, 3, [1.0, 2.0][index]),
        ("gradient_norm", 3, 3, [8.0, 9.0][index]),
        ("train_loss", 7, 4, [0.5, 0.25][index]),
        ("gradient_norm", 7, 4, [6.0, 7.0][index]),
    ]
    empty = ("metric_version", "length", "in_distribution", "on_boards")
    assert all(row["weights"] == "raw" and all(row[name] is None for name in empty) for row in found)


def test_a_run_that_diverged_says_so_in_every_row_and_a_value_may_be_none(experiment):
    found = rows(experiment, [Score("raw", "roc_auc", 4, None, 0)], diverged=5).to_pylist()
    assert {row["diverged_step"] for row in found} == {5}
    assert [(row["value"], row["n"]) for row in found if row["length"]] == [(None, 0)]
