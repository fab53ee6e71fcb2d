"""Which seeds count as not fitted: the rule, and the boards that apply it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.run_files import simulated, write_rows

import lgbench_measurements
from lgbench.results.compare import compare
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric

METRICS = {measurement.name: Metric.of(measurement) for measurement in lgbench_measurements.lgbench_measurements()}
TVD, ACCURACY = METRICS["tvd"], METRICS["accuracy"]


@pytest.mark.parametrize(
    ("metric", "context_free", "expected"),
    [
        (TVD, None, 0.1),
        (TVD, 0.9, 0.1),  # far from the baseline, the metric's threshold is harder
        (TVD, 0.2, 0.1),
        (TVD, 0.05, 0.025),  # as on tomita-4
        (TVD, 0.0, 0.1),  # as on Tomita 1, where the length alone decides the answer
        (ACCURACY, None, 0.9),
        (ACCURACY, 0.5, 0.9),
        (ACCURACY, 0.95, 0.975),
        (ACCURACY, 1.0, 0.9),
        (replace(TVD, threshold=None), None, None),
        (replace(TVD, threshold=None), 0.4, 0.2),
        (replace(ACCURACY, high=None), 0.95, 0.9),  # without a best value there is no halfway
    ],
)
def test_the_threshold_is_at_most_halfway_between_chance_and_a_perfect_answer(metric, context_free, expected):
    assert metric.limit(context_free) == (None if expected is None else pytest.approx(expected))


def write(folder, values, context_free=None, metric="tvd", **columns):
    """Runs of {seed: ID mean}, each with the context-free baseline of its task."""
    for seed, value in values.items():
        rows = simulated({4: value, 8: value, 16: 0.5}, seed=seed, metric=metric, **columns)
        if context_free is not None:
            rows += simulated({4: context_free - 0.01, 8: context_free + 0.01, 16: 0.5}, seed=seed, weights="chance", **columns)
        name = "-".join(map(str, (columns.get("task", "alpha"), columns.get("weights", "raw"), metric, seed)))
        write_rows(folder / f"{name}.parquet", rows)


def test_a_seed_that_knows_nothing_has_not_fitted_a_task_whose_context_free_level_passes_the_threshold(tmp_path):
    write(tmp_path, {0: 0.05, 1: 0.026, 2: 0.024, 3: 0.0}, context_free=0.05)
    (board,) = Results(tmp_path).boards("tvd")
    assert (board.rows[0].not_fitted, board.rows[0].not_fitted_tasks) == ((0, 1), {"alpha": 2})


def test_each_task_of_a_family_is_judged_by_its_own_context_free_level(tmp_path):
    write(tmp_path, {0: 0.05, 1: 0.02}, context_free=0.05, task="alpha-1", family="alpha")
    write(tmp_path, {0: 0.05, 1: 0.12}, context_free=0.9, task="alpha-2", family="alpha")
    write(tmp_path, {0: 0.05, 1: 0.02}, task="alpha-3", family="alpha")
    (board,) = Results(tmp_path).boards("tvd")
    assert (board.rows[0].not_fitted, board.rows[0].not_fitted_tasks) == ((0, 1), {"alpha-1": 1, "alpha-2": 1})


def test_boards_of_every_metric_count_the_same_seeds_as_not_fitted(tmp_path):
    write(tmp_path, {0: 0.05, 1: 0.02}, context_free=0.05)
    write(tmp_path, {0: 1.0, 1: 0.0}, metric="accuracy")
    results = Results(tmp_path)
    assert [results.boards(metric)[0].rows[0].not_fitted for metric in ("tvd", "accuracy")] == [(0,), (0,)]


def test_a_seed_without_tvd_does_not_count_as_not_fitted(tmp_path):
    write(tmp_path, {0: 0.2}, context_free=0.9)
    write(tmp_path, {0: 0.5, 1: 0.5}, metric="accuracy")
    (board,) = Results(tmp_path).boards("accuracy")
    assert (board.rows[0].seeds, board.rows[0].not_fitted) == ((0, 1), (0,))


def entries(folder, tasks=("alpha",), **values):
    """Runs of three seeds of each entry on each task, with {length: TVD}."""
    for entry, by_length in values.items():
        for task in tasks:
            for seed in range(3):
                rows = simulated(by_length, entry=entry, seed=seed, task=task, family="family" if len(tasks) > 1 else task)
                write_rows(folder / f"{entry}.{task}.{seed}.parquet", rows)


LEARNS_LEAST = {8: 0.5, 16: 0.3}
LEARNS_MORE = {8: 0.4, 16: 0.6}
FITTED = {8: 0.01, 16: 0.9}


def test_a_task_that_nobody_fitted_is_ranked_by_the_lengths_that_models_were_trained_on(tmp_path):
    entries(tmp_path, least=LEARNS_LEAST, more=LEARNS_MORE)
    results = Results(tmp_path)
    (board,) = results.boards("tvd", baseline="least")
    assert board.ranked_by == "ID" and [row.entry for row in board.rows] == ["more", "least"]
    assert [row.tier for row in board.rows] == [2, 3] and board.rows[0].against.difference == pytest.approx(-0.1)
    (mean,) = [found.mean for found in compare(results, "more", "least", "tvd")]
    assert mean.difference == pytest.approx(-0.1)


def test_where_one_seed_fitted_it_the_longer_lengths_rank(tmp_path):
    entries(tmp_path, least=LEARNS_LEAST, more=LEARNS_MORE)
    write_rows(tmp_path / "fitted.parquet", simulated(FITTED, entry="more", seed=3))
    (board,) = Results(tmp_path).boards("tvd")
    assert board.ranked_by == "OOD" and [row.entry for row in board.rows] == ["least", "more"]


@pytest.mark.parametrize(("level", "order"), [(0.35, ("OOD", ["least", "more"])), (0.3, ("ID", ["more", "least"]))])
def test_where_an_entry_beats_chance_on_longer_inputs_they_rank_though_nobody_fitted(tmp_path, level, order):
    """As on set complement, where the context-free baseline is near perfect on short inputs."""
    entries(tmp_path, least=LEARNS_LEAST, more=LEARNS_MORE)
    write_rows(tmp_path / "chance.parquet", simulated({8: 0.01, 16: level}, weights="chance", run_id="f" * 16))
    (board,) = Results(tmp_path).boards("tvd")
    assert (board.ranked_by, [row.entry for row in board.rows]) == order


def test_a_family_of_several_tasks_is_ranked_by_the_longer_lengths(tmp_path):
    entries(tmp_path, tasks=("one", "two"), least=LEARNS_LEAST, more=LEARNS_MORE)
    results = Results(tmp_path)
    assert [(board.name, board.ranked_by) for board in results.boards("tvd")] == [("family", "OOD")]
    assert {(board.name, board.ranked_by) for board in results.boards("tvd", apart=True)} == {("one", "ID"), ("two", "ID")}
