"""Grids of entries by families and classes of tasks, against means by hand over the rows."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.run_files import simulated, write_rows

from lgbench.results.leaderboard import Results
from lgbench.results.overall import grid

LENGTHS = (4, 8, 16, 32)
"""Models are trained to length 8."""
TASKS = {"alpha-1": "alpha", "alpha-2": "alpha", "beta": "beta", "gamma": "gamma"}
CLASSES = {"alpha-1": "star-free", "alpha-2": "counter", "beta": "counter"}
CONTEXT_FREE = {"alpha-1": 0.2, "alpha-2": 0.4, "beta": 0.8, "gamma": 0.5}
RAN = {"all": TASKS, "most": ["alpha-1", "alpha-2", "beta"], "one": ["beta"], "half": ["alpha-1", "gamma"], "blind": ["beta"]}


@pytest.fixture
def values(tmp_path):
    """Values by entry, task, seed and length, of runs in a folder; one entry is not causal."""
    random = np.random.default_rng(0)
    found = {}
    for entry, tasks in RAN.items():
        for task in tasks:
            for seed in range(3):
                own = {length: float(value) for length, value in zip(LENGTHS, random.uniform(0, 0.6, 4), strict=True)}
                same = {"entry": entry, "task": task, "family": TASKS[task], "seed": seed}
                found |= {(entry, task, seed, length): value for length, value in own.items()}
                rows = simulated(own, **same) + simulated(dict.fromkeys(LENGTHS, CONTEXT_FREE[task]), weights="chance", **same)
                averaged = simulated(dict.fromkeys(LENGTHS, 0.0), weights="ema", **same)
                leak = simulated({8: 0.5}, metric="looks_ahead", **same) if entry == "blind" else []
                write_rows(tmp_path / f"{entry}.{task}.{seed}.parquet", [*rows, *averaged, *leak])
    return found


def mean(values, entry, tasks):
    return np.mean([np.mean([values[entry, task, seed, length] for seed in range(3) for length in (16, 32)]) for task in tasks])


def test_a_cell_is_the_mean_over_tasks_seeds_and_longer_inputs_as_a_share_of_the_baseline(values, tmp_path):
    results = Results(tmp_path)
    tasks = {board.name: board for board in results.boards("tvd", apart=True)}
    made = grid(results.boards("tvd"), tasks, CLASSES)
    columns = [(column.kind, column.name, column.tasks) for column in made.columns]
    assert columns == [
        *(("family", name, ()) for name in ("alpha", "beta", "gamma")),
        ("class", "counter", ("alpha-2", "beta")),
        ("class", "star-free", ("alpha-1",)),
    ]
    assert [row.entry for row in made.rows][:2] == ["all", "most"]
    assert {row.entry for row in made.rows} == {"all", "most", "one", "half"}  # no averages, and only causal models
    members = [["alpha-1", "alpha-2"], ["beta"], ["gamma"], ["alpha-2", "beta"], ["alpha-1"]]
    for at, (column, own) in enumerate(zip(made.columns, members, strict=True)):
        level = np.mean([CONTEXT_FREE[task] for task in own])
        assert column.context_free == pytest.approx(level, abs=1e-4)
        expected = {entry: mean(values, entry, own) for entry in RAN if {*own} <= {*RAN[entry]} and entry != "blind"}
        cells = {row.entry: row.cells[at] for row in made.rows if row.cells[at] is not None}
        assert {entry: cell.mean for entry, cell in cells.items()} == pytest.approx(expected, abs=1e-4)
        assert {entry: cell.share for entry, cell in cells.items()} == pytest.approx(
            {entry: value / level for entry, value in expected.items()}, abs=1e-3
        )
        best = [
            entry
            for entry, value in expected.items()
            if value == min(expected.values()) and value < level and len(expected) > 1
        ]
        assert [entry for entry, cell in cells.items() if cell.best] == best


def test_the_best_has_the_highest_value_where_that_is_better_and_without_a_baseline_there_is_no_share(tmp_path):
    for entry, value in {"good": 0.9, "poor": 0.4}.items():
        for seed in range(3):
            rows = simulated(dict.fromkeys(LENGTHS, value + seed / 100), metric="accuracy", entry=entry, seed=seed)
            write_rows(tmp_path / f"{entry}.{seed}.parquet", rows)
    results = Results(tmp_path)
    made = grid(results.boards("accuracy"), {}, {})
    (good,), (poor,) = (row.cells for row in made.rows)
    assert [row.entry for row in made.rows] == ["good", "poor"] and good.best and not poor.best
    assert good.share is None and made.columns[0].context_free is None
    assert good.may_be_best and not poor.may_be_best
