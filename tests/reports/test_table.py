from __future__ import annotations

import csv
import dataclasses
import io
import json
import random
import re

import pytest
from helpers.run_files import measured_by_all, simulated, write_rows
from rich.console import Console

from lgbench.experiment.tuning import Tuning, TuningRun
from lgbench.reports import boards as boards_report
from lgbench.reports.figure import heading, panel_title
from lgbench.reports.tables import as_json, show
from lgbench.results.leaderboard import Results


@pytest.fixture
def opened(tmp_path):
    def write(entry, seed, task, values, **columns):
        rows = simulated(values, task=task, family="alpha", entry=entry, seed=seed, **columns)
        write_rows(tmp_path / f"{entry}{seed}{task}.parquet", rows)

    for task in ("alpha-1", "alpha-2"):
        write("held+norm", 0, task, {4: 0.0, 8: 0.05, 16: 0.05, 32: 0.05})
        write("good+norm", 0, task, {4: 0.0625, 8: 0.0625, 16: 0.25, 32: 0.5})
        write("good+norm", 1, task, {4: 0.0, 8: 0.375, 16: 0.25, 32: 0.25}, diverged_step=3)
        write("poor+norm", 0, task, {4: 0.0, 8: 0.5 if task == "alpha-1" else 0.05, 16: 0.75, 32: None})
        write("none+norm", 0, task, {4: 0.0, 8: 0.05, 16: None, 32: None})
    write("lost+norm", 0, "alpha-1", {4: 0.0, 8: 0.0})
    return Results(tmp_path)


@pytest.fixture
def boards(opened):
    return opened.boards("tvd")


def drawn(boards, width: int = 200) -> str:
    out = io.StringIO()
    for table in boards_report.tables(boards):
        show(table, Console(file=out, width=width))
    return out.getvalue()


GRID = (0.001, 0.003, 0.009)
TUNED = {"inner+norm": {"alpha-1": (0.003, GRID), "alpha-2": (0.009, (*GRID, 0.027))}}
TUNED |= {"upper+norm": {"alpha-1": (0.009, GRID), "alpha-2": (0.003, GRID)}}
TUNED |= {"lower+norm": {"alpha-1": (0.001, GRID), "alpha-2": (0.001, GRID)}}


@pytest.fixture
def tuned(tmp_path):
    for entry, task in ((entry, task) for entry, by_task in TUNED.items() for task in by_task):
        chosen, tried = TUNED[entry][task]
        runs = tuple(TuningRun(lr, seed, (1.0,), None, 1, False) for lr in tried for seed in (1, 2))
        tuning = dataclasses.asdict(Tuning(GRID, (1, 2), 25, runs, chosen))
        rows = simulated({8: 0.0, 16: 0.5}, task=task, family="alpha", entry=entry)
        about = {"measurements": measured_by_all(), "experiment": {"tuning": tuning}}
        write_rows(tmp_path / f"{entry}{task}.parquet", rows, **about)
    write_rows(tmp_path / "fixed.parquet", simulated({8: 0.0, 16: 0.5}, task="alpha-1", family="alpha", entry="fixed+norm"))
    return Results(tmp_path)


def test_a_note_names_the_chosen_rates_and_those_tried_and_ends_that_are_left(tuned):
    """By hand: the lowest and the highest over tasks, and the tasks on which the chosen rate is the first or last tried."""
    (board,) = tuned.boards("tvd")
    rates = {
        entry: {task: [vars(rate) for rate in own] for task, own in found.items()}
        for entry, found in board.learning_rates.items()
    }
    assert rates == {
        entry: {task: [{"chosen": chosen, "tried": tried}] for task, (chosen, tried) in by_task.items()}
        for entry, by_task in TUNED.items()
    }
    said = "Learning rates, chosen in-distribution on other seeds: "
    lower = "0.001 of 0.001 to 0.009 (an end on 2 of 2 tasks) for lower+norm"
    upper = "0.003 to 0.009 of 0.001 to 0.009 (an end on 1 of 2 tasks) for upper+norm"
    inner = "0.003 to 0.009 of 0.001 to 0.027 for inner+norm"
    assert f"{said}{lower}; {upper}; {inner}." in " ".join(drawn([board], 80).split())
    (alone,) = tuned.boards("tvd", "alpha-1")
    assert f"{said}0.001 of 0.001 to 0.009 (an end) for lower+norm; " in " ".join(drawn([alone], 80).split())


def test_a_table_shows_means_with_intervals_below(boards):
    lines = [re.split(r" {2,}", line.strip()) for line in drawn(boards).splitlines()]
    assert ["tier", "interval", "entry", "seeds", "fitted", "ID", "OOD", "length", "8", "16", "32"] in lines
    assert ["rank", "effective"] in lines  # the first line of two columns' names
    rows = {line[2]: line[3:] for line in lines if len(line) == 11}
    assert rows["held+norm"] == ["1", "1.00", "0.0250", "0.0500", ">=4x", "0.0500", "0.0500", "0.0500"]
    assert rows["good+norm"] == [
        "2 (1 diverged, 1 not fitted)",
        "0.50",
        "0.1250",
        "0.3125",
        "0.5x",
        "0.2188",
        "0.2500",
        "0.3750",
    ]
    assert rows["poor+norm"] == ["1 (1 not fitted)", "0.00", "0.1375", "0.7500", "0.5x", "0.2750", "0.7500", "-"]
    assert rows["none+norm"] == ["1", "1.00", "0.0250", "-", "1x", "0.0500", "-", "-"]
    assert [line[:3] for line in lines if len(line) == 11][1:] == [
        ["1", "1-3", "held+norm"],
        ["1", "1-3", "good+norm"],
        ["2", "1-3", "poor+norm"],
        ["-", "-", "none+norm"],
    ]
    below = lines[next(i for i, line in enumerate(lines) if "good+norm" in line) + 1]
    assert below == ["0.01 0.99", "0.000 0.919", "0.000 1.000", "0.000 1.000", "0.250 0.250", "0.000 1.000"]


def test_a_table_says_what_it_is_about_and_who_is_left_out(boards):
    text = drawn(boards)
    for said in ("alpha: TVD", "lower is better", "mean over 2 tasks", "length 8", "quick/1", "task version 1"):
        assert said in text
    assert "lost+norm: seed 0 lacks alpha-2 and is left out" in text


def test_titles_say_so_where_a_family_has_one_task_alone(tmp_path):
    write_rows(tmp_path / "a.parquet", simulated({8: 0.1, 16: 0.2}, task="alpha-1", family="alpha"))
    write_rows(tmp_path / "b.parquet", simulated({8: 0.1, 16: 0.2}, task="beta~0123abcd", family="beta"))
    alpha, beta = Results(tmp_path).boards("tvd")
    assert boards_report.title(alpha).startswith("alpha (alpha-1 alone): TVD")
    assert heading([alpha], "TVD")[0] == "alpha (alpha-1 alone): TVD"
    assert panel_title(alpha, [alpha, beta]) == ["alpha (alpha-1 alone)"]
    assert boards_report.title(beta).startswith("beta: TVD")
    (task,) = Results(tmp_path).boards("tvd", "alpha-1")
    assert boards_report.title(task).startswith("alpha-1: TVD")


def test_a_table_names_the_tasks_that_were_not_fitted_and_by_how_many_seeds(boards):
    (said,) = [note for note in boards_report.notes(boards[0]) if note.startswith("Not fitted")]
    assert "alpha-1 by 2 of 5 models" in said and "alpha-2 by 1 of 5 models" in said
    assert said in drawn(boards) and said in boards_report.boards_markdown(boards)


def test_where_everything_is_fitted_nothing_is_noted(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.05, 16: 0.5}))
    (board,) = Results(tmp_path).boards("tvd")
    assert boards_report.notes(board) == []
    assert "fitted" not in drawn([board])


BASELINE = "transformer+pre-norm"


@pytest.fixture
def compared(tmp_path):
    """The baseline, an entry that is better, one that is worse, and one that differs little."""
    for seed in range(5):
        for entry, mean in ((BASELINE, 0.5), ("good", 0.3), ("bad", 0.7), ("like", 0.501)):
            noise = random.Random(f"{entry} {seed}").gauss(0, 0.01)
            write_rows(tmp_path / f"{entry}{seed}.parquet", simulated({8: 0.05, 16: mean + noise}, entry=entry, seed=seed))
    return Results(tmp_path).boards("tvd")


def test_a_column_has_differences_to_the_baseline_with_interval_and_verdict(compared):
    (board,) = compared
    found = {row.entry: row.against for row in board.rows}
    assert [found[entry].verdict for entry in ("good", "bad", "like")] == ["better", "worse", None]
    assert found[BASELINE] is None and board.compared
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in boards_report.boards_markdown(compared).splitlines()
    ]
    column = lines[2].index("against baseline")
    shown = {line[2].strip("`"): line[column] for line in lines[4:8]}
    assert shown.pop(BASELINE) == "baseline"
    for entry, text in shown.items():
        own = found[entry]
        verdict = f" {own.verdict}" if own.verdict else ""
        assert text == f"{own.difference:+.4f} [{own.low:+.4f}, {own.high:+.4f}]{verdict}"
        assert f"{own.difference:+.4f}{verdict}" in drawn(compared) and f"{own.low:+.3f} {own.high:+.3f}" in drawn(compared)
    csv_lines = list(csv.DictReader(io.StringIO(boards_report.boards_csv(compared))))
    assert {line["entry"]: line["baseline_verdict"] for line in csv_lines} == {
        "good": "better", "bad": "worse", "like": "", BASELINE: "",
    }  # fmt: skip
    about = (
        f"The baseline is {BASELINE}. Differences from it are over common seeds, and verdicts are corrected for 3 comparisons."
    )
    assert boards_report.notes(board)[-1] == about


def test_a_baseline_that_was_asked_for_keeps_its_column_on_a_narrow_terminal(compared):
    narrow = {}
    for asked in (False, True):
        out = io.StringIO()
        for table in boards_report.tables(compared, compares=asked):
            show(table, Console(file=out, width=74, force_terminal=True, color_system=None))
        narrow[asked] = out.getvalue()
    assert re.search("no room for[^;]*against", narrow[False], re.DOTALL)
    assert not re.search("no room for[^;]*against", narrow[True], re.DOTALL) and "against" in narrow[True]


def test_where_the_baseline_is_not_on_the_board_the_column_is_left_out_and_that_is_said(boards):
    (said,) = [note for note in boards_report.notes(boards[0]) if "--baseline" in note]
    assert said == f"No entry is compared with {BASELINE}, which is not ranked here; --baseline names another entry."
    assert "against baseline" not in boards_report.boards_markdown(boards) and said in drawn(boards)


def test_markdown_holds_the_same_numbers_as_the_boards(boards):
    text = boards_report.boards_markdown(boards)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == ["tier", "rank interval", "entry", "seeds", "fitted", "ID", "OOD", "effective length", "8", "16", "32"]
    assert {len(line) for line in lines} == {11}
    (board,) = boards
    for row, line in zip(board.rows, lines[2:], strict=True):
        ranks = "-" if row.rank_interval is None else "-".join(map(str, row.rank_interval))
        assert line[:3] == [str(row.tier or "-"), ranks, f"`{row.entry}`"]
        assert line[3].split()[0] == str(len(row.seeds))
        assert line[7] == boards_report.effective_length(board, row)
        columns = [("ID", None), ("OOD", None), *(("length", length) for length in (8, 16, 32))]
        for column, shown in zip(columns, line[5:7] + line[8:], strict=True):
            cell = row.cell(*column)
            ends = "" if cell is None or cell.low is None else f" [{cell.low:.4f}, {cell.high:.4f}]"
            assert shown == ("-" if cell is None else f"{cell.mean:.4f}{ends}")
    assert text.startswith("### alpha: TVD")
    assert "lost+norm: seed 0" in text


def test_csv_has_one_line_a_cell_with_the_numbers_of_the_boards(boards):
    lines = list(csv.DictReader(io.StringIO(boards_report.boards_csv(boards))))
    (board,) = boards
    cells = [(row, cell) for row in board.rows for cell in row.cells]
    for line, (row, cell) in zip(lines, cells, strict=True):
        best, worst = row.rank_interval or (None, None)
        numbers = {name: getattr(cell, name) for name in ("length", "mean", "low", "high", "n")}
        numbers |= {"tier": row.tier, "best_rank": best, "worst_rank": worst, "effective_length": row.effective_length}
        numbers |= {"seeds": len(row.seeds), "diverged": len(row.diverged), "not_fitted": len(row.not_fitted)}
        assert {name: float(line[name]) if line[name] else None for name in numbers} == numbers
        assert [line[name] for name in ("board", "metric", "protocol", "entry", "column")] == [
            "alpha", "tvd", "quick/1", row.entry, cell.kind,
        ]  # fmt: skip


def test_json_is_everything_that_a_board_is(boards):
    shown = json.loads(as_json(boards), parse_constant=pytest.fail)
    assert shown == json.loads(json.dumps([dataclasses.asdict(board) for board in boards]))
    (found,) = shown
    assert (found["name"], found["train_length"], found["tasks"]) == ("alpha", 8, 2)


@pytest.fixture
def with_context_free(tmp_path):
    level = simulated({4: 0.1, 8: 0.3, 16: 0.5, 32: 0.75}, weights="chance")
    write_rows(tmp_path / "run.parquet", simulated({4: 0.0, 8: 0.05, 16: 0.25, 32: 0.5}) + level)
    return Results(tmp_path).boards("tvd")


def test_a_line_below_the_entries_has_the_context_free_level(with_context_free):
    rows = {words[0]: words[2:] for line in drawn(with_context_free).splitlines() if (words := line.split())}
    assert rows["context-free"] == ["0.2000", "0.6250", "0.3000", "0.5000", "0.7500"]
    *_, entry, context_free = (
        line for line in boards_report.boards_markdown(with_context_free).splitlines() if line.startswith("|")
    )
    assert "`arch+norm`" in entry
    cells = [cell.strip() for cell in context_free.strip("|").split("|")]
    assert cells == ["", "", "context-free baseline", "", "0.2000", "0.6250", "", "0.3000", "0.5000", "0.7500"]


def test_csv_and_json_have_the_context_free_level_of_each_column(with_context_free):
    lines = list(csv.DictReader(io.StringIO(boards_report.boards_csv(with_context_free))))
    found = {(line["column"], line["length"]): float(line["context_free"]) for line in lines}
    lengths = {("length", "4"): 0.1, ("length", "8"): 0.3, ("length", "16"): 0.5, ("length", "32"): 0.75}
    assert found == lengths | {("ID", ""): 0.2, ("OOD", ""): 0.625}
    (shown,) = json.loads(as_json(with_context_free))
    assert {"kind": "OOD", "length": None, "mean": 0.625} in shown["context_free"]


def test_a_table_names_the_entries_that_lack_the_metric_and_how_many_seeds(tmp_path):
    for seed in range(3):
        both = simulated({8: 0.05, 16: 0.2}, seed=seed) + simulated({8: 0.9, 16: 0.8}, seed=seed, metric="accuracy")
        write_rows(tmp_path / f"{seed}.parquet", both[: 4 if seed == 0 else 2])
    (board,) = Results(tmp_path).boards("accuracy")
    (said,) = boards_report.notes(board)
    assert "accuracy" in said and "arch+norm (2 seeds)" in said and said in drawn([board])
    (complete,) = Results(tmp_path).boards("tvd")
    assert boards_report.notes(complete) == []
