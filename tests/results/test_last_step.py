"""Boards are made from the last step of each run; curves against steps from all of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import invoked
from helpers.run_files import simulated, write_rows

from lgbench.results.leaderboard import Results
from lgbench.results.statistics import interval

STEPS = (1, 5, 25, 100)
LENGTHS = (8, 16, 24, 32, 64)
EARLY = (8, 16, 24)
TRAINED = 8
ENTRIES = ("transformer+pre-norm", "transformer+peri-norm")
CONTEXT_FREE = {8: 0.5, 16: 0.55, 24: 0.57, 32: 0.6, 64: 0.7}
TASKS = ("alpha-1", "alpha-2")


def value(entry: str, weights: str, task: str, seed: int, step: int, length: int) -> float:
    """At early steps the order of entries is another one than at the end."""
    place = ENTRIES.index(entry) * (1 if step == STEPS[-1] else -1)
    return round(
        0.4 + 0.1 * place + 0.01 * seed + length / 1000 - step / 1000 + 0.003 * (weights == "ema") + 0.001 * int(task[-1]), 9
    )


def rows_of(entry: str, task: str, seed: int, steps=STEPS) -> list[dict]:
    run_id = f"{ENTRIES.index(entry)}{task}{seed}"
    same = {"entry": entry, "task": task, "family": "alpha", "seed": seed, "run_id": run_id}
    rows = simulated(CONTEXT_FREE, TRAINED, weights="chance", step=STEPS[-1], **same)
    for weights in ("raw", "ema"):
        for step in steps:
            values = {n: value(entry, weights, task, seed, step, n) for n in (LENGTHS if step == STEPS[-1] else EARLY)}
            rows += simulated(values, TRAINED, weights=weights, step=step, **same)
    at_end = {row["length"]: row["on_boards"] for row in rows if row["step"] == STEPS[-1]}
    curve = [row | {"metric": "train_loss", "length": None, "on_boards": None} for row in simulated({8: 2.5}, step=50, **same)]
    return [row | {"on_boards": at_end[row["length"]]} for row in rows] + curve


def write_all(folder: Path, steps=STEPS) -> Path:
    for entry in ENTRIES:
        for task in TASKS:
            for seed in range(3):
                write_rows(folder / f"{task}.{entry}.{seed}.parquet", rows_of(entry, task, seed, steps))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_all(tmp_path_factory.mktemp("steps"))


@pytest.fixture(scope="module")
def without(tmp_path_factory) -> Path:
    """The same runs without anything before the end."""
    return write_all(tmp_path_factory.mktemp("ends"), STEPS[-1:])


@pytest.mark.parametrize("apart", [False, True])
def test_boards_are_those_of_runs_that_have_the_last_step_alone(folder, without, apart):
    assert Results(folder).boards("tvd", apart=apart) == Results(without).boards("tvd", apart=apart)


def test_a_metric_that_was_measured_before_the_end_alone_is_on_no_board(tmp_path):
    rows = simulated({8: 0.5, 16: 0.5}, step=100) + simulated({8: 0.9, 16: 0.9}, step=50, metric="accuracy")
    write_rows(tmp_path / "run.parquet", rows)
    results = Results(tmp_path)
    assert [board.name for board in results.boards("tvd")] == ["alpha"] and results.boards("accuracy") == []
    assert not results.steps("accuracy")


def test_a_flag_before_the_end_flags_nothing(tmp_path):
    flag = {"metric": "not_finite", "metric_version": 1}
    rows = simulated({8: 0.5, 16: 0.5}, step=100) + simulated({8: 1.0}, step=50, **flag) + simulated({8: 0.0}, step=100, **flag)
    write_rows(tmp_path / "run.parquet", rows)
    ((row,),) = [board.rows for board in Results(tmp_path).boards("tvd")]
    assert not row.not_finite and row.tier == 2


def test_the_table_final_has_what_boards_read(folder, without):
    results = Results(folder)
    names, rows = results.ask("select * from final")
    assert names == Results(without).ask("select * from results limit 1")[0]
    expected = Results(without).ask("select * from results where length is not null")[1]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    assert results.ask("select max(step), min(step) from final")[1] == [(100, 100)]
    assert results.ask("select count(distinct step) from results where length is not null")[1] == [(len(STEPS),)]


@pytest.fixture(scope="module")
def steps(folder):
    (found,) = Results(folder).steps("tvd")
    return found


def test_curves_against_steps_are_means_over_tasks_and_seeds_with_their_intervals(steps):
    assert list(steps.curves) == list(EARLY)
    for length, curves in steps.curves.items():
        assert curves.context_free == CONTEXT_FREE[length] and curves.steps == list(STEPS)
        assert set(curves.cells) == {*ENTRIES, *(f"{entry}@ema" for entry in ENTRIES)}
        for label, cells in curves.cells.items():
            entry, _, weights = label.partition("@")
            for cell, step in zip(cells, STEPS, strict=True):
                of_tasks = [[value(entry, weights or "raw", task, seed, step, length) for seed in range(3)] for task in TASKS]
                seeds = np.mean(of_tasks, 0)
                low, high = (end.item() for end in interval(seeds))
                assert (cell.length, cell.n) == (step, 3)
                assert (cell.mean, cell.low, cell.high) == pytest.approx((seeds.mean().item(), low, high), abs=1e-4)


def test_the_end_of_a_curve_is_what_the_board_says(steps, folder):
    (board,) = Results(folder).boards("tvd")
    for length in (8, 16):
        for row in board.rows:
            cell, last = row.cell("length", length), steps.curves[length].cells[row.entry][-1]
            assert (cell.mean, cell.low, cell.high, cell.n) == (last.mean, last.low, last.high, last.n)


def test_a_seed_that_lacks_a_task_is_in_no_mean(tmp_path):
    write_all(tmp_path)
    (tmp_path / f"alpha-2.{ENTRIES[0]}.1.parquet").unlink()
    (found,) = Results(tmp_path).steps("tvd")
    assert {cell.n for cell in found.curves[16].cells[ENTRIES[0]]} == {2}
    assert {cell.n for cell in found.curves[16].cells[ENTRIES[1]]} == {3}


def test_runs_without_points_have_no_curves(without):
    assert Results(without).steps("tvd") == []


@pytest.mark.slow
def test_a_plot_against_steps_is_a_picture_with_a_panel_for_each_length(folder, tmp_path):
    done = invoked("plot", "--x", "step", "--length", "16,8", "--results", folder, "--out", tmp_path / "a.png")
    assert done.exit_code == 0, done.output
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert invoked("plot", "--x", "step", "--length", "16,8", "--results", folder, "--out", tmp_path / "a.json").exit_code == 0
    spec = json.loads((tmp_path / "a.json").read_text())
    text = json.dumps(spec)
    assert text.index("length 16, OOD") < text.index("length 8, ID") and "training steps" in text
    first = spec["datasets"]["cells 0"]
    assert {(row["entry"], row["step"]) for row in first} == {(entry, step) for entry in ENTRIES for step in STEPS}
    assert spec["datasets"]["context_free 0"] == [{"step": step, "mean": CONTEXT_FREE[16]} for step in (1, 100)]
    assert spec["description"].startswith("alpha: TVD while models train, lower is better. mean over 2 tasks")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--x", "steps"], "no setting 'steps'; did you mean 'train.steps', or 'step' or 'length'?"),
        (["--length", "8"], "--length chooses the panels of a plot against training steps or a setting; add --x step or"),
        (["--x", "step", "--length", "64"], "length 64 was not measured while models trained; measured: 8, 16, 24"),
        (["--x", "step", "--length", "8,long"], "'8,long' names no lengths; use whole numbers joined by commas"),
        (["--x", "step", "--task", "alpha-3"], "did you mean"),
    ],
)
def test_wrong_usage_says_what_would_work(folder, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    done = invoked("plot", "--results", folder, *arguments)
    assert done.exit_code == 2 and said in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_a_plot_of_runs_without_points_says_what_they_lack(without, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoked("plot", "--x", "step", "--results", without)
    assert done.exit_code == 2 and "no tvd was measured while these models trained: runs need evaluate.points" in done.stderr
