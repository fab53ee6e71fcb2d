"""The values that `lgbench run` draws are those that SQL chooses for boards."""

from __future__ import annotations

import random

import numpy as np
from helpers.run_files import simulated, write_rows

import lgbench_measurements
from lgbench.reports.curves import primary_metric, raw_values
from lgbench.results.columns import BoardValues, Values
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric

TVD = Metric.of(lgbench_measurements.TotalVariation())
LENGTHS = (0, 1, 2, 4, 6, 8, 11, 16, 21, 32, 64)


def test_the_values_that_a_run_draws_are_those_that_sql_chooses(tmp_path):
    draw = random.Random(0)

    def values(**columns):
        return simulated({n: draw.choice([None, draw.random()]) for n in LENGTHS if draw.random() < 0.9}, **columns)

    for task in ("alpha-1", "alpha-2"):
        for entry in ("arch+norm", "arch+other"):
            for seed in range(4):
                same = {"task": task, "family": "alpha", "entry": entry, "seed": seed}
                same["diverged_step"] = 3 if draw.random() < 0.3 else None
                rows = values(**same) + values(**same, metric="accuracy")
                rows += values(**same, weights="ema") + values(**same, weights="chance")
                curve = {"metric": "train_loss", "metric_version": None, "length": None, "in_distribution": None}
                rows += [row | curve | {"on_boards": None} for row in simulated({5: 2.5}, **same)]
                write_rows(tmp_path / f"{task}.{entry}.{seed}.parquet", rows)
    paths = sorted(tmp_path.glob("*.parquet"))
    assert [primary_metric(path) for path in paths] == [TVD] * len(paths)
    found = BoardValues.of(Values.of(value for path in paths for value in raw_values(path, TVD)))
    ((_, board),) = Results(tmp_path).models("tvd")
    own = [board.entries.index(entry) for entry in found.entries]
    assert found.entries == ("arch+norm", "arch+other") == tuple(entry for entry in board.entries if "@" not in entry)
    assert (found.seeds, found.tasks, found.lengths) == (board.seeds, board.tasks, board.lengths)
    np.testing.assert_array_equal(found.values, board.values[own])
    np.testing.assert_array_equal(found.measured, board.measured[own])
    np.testing.assert_array_equal(found.in_distribution, board.in_distribution)
    assert found.diverged == {(entry, seed) for entry, seed in board.diverged if "@" not in entry}
    assert np.isnan(found.values).any() and not found.measured.all() and found.diverged


def test_values_of_another_version_are_not_taken(tmp_path):
    path = write_rows(tmp_path / "run.parquet", simulated({8: 0.5}) + simulated({16: 0.5}, metric_version=2))
    assert [value.length for value in raw_values(path, TVD)] == [8]


def test_a_file_that_describes_no_primary_metric_has_none(tmp_path):
    path = write_rows(tmp_path / "run.parquet", simulated({8: 0.5}), experiment={}, measurements=[])
    assert primary_metric(path) is None
