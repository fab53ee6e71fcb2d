from __future__ import annotations

import csv
import io
import json
import re

import pytest
from conftest import simulated, write_rows
from rich.console import Console

from lgbench import render
from lgbench.leaderboard import Results


@pytest.fixture
def opened(tmp_path):
    def write(entry, seed, task, values, **columns):
        rows = simulated(values, task=task, family="alpha", entry=entry, seed=seed, **columns)
        write_rows(tmp_path / f"{entry}{seed}{task}.parquet", rows)

    for task in ("alpha-1", "alpha-2"):
        write("good+norm", 0, task, {4: 0.0, 8: 0.125, 16: 0.25, 32: 0.5})
        write("good+norm", 1, task, {4: 0.0, 8: 0.375, 16: 0.25, 32: 0.25}, diverged_step=3)
        write("poor+norm", 0, task, {4: 0.5, 8: 0.5, 16: 0.75, 32: None})
    write("lost+norm", 0, "alpha-1", {4: 0.0, 8: 0.0})
    return Results(tmp_path)


@pytest.fixture
def boards(opened):
    return opened.boards("tvd")


def drawn(boards, width: int = 200) -> str:
    out = io.StringIO()
    render.table(boards, Console(file=out, width=width))
    return out.getvalue()


def test_a_table_shows_means_with_spreads_below(boards):
    lines = [re.split(r" {2,}", line.strip()) for line in drawn(boards).splitlines()]
    assert ["entry", "seeds", "in range", "beyond", "8", "16", "32"] in lines
    first = next(i for i, line in enumerate(lines) if "good+norm" in line)
    assert lines[first] == ["1", "good+norm", "2 (1 diverged)", "0.1250", "0.3125", "0.2500", "0.2500", "0.3750"]
    assert lines[first + 1] == ["±0.0884", "±0.0884", "±0.1768", "±0.0000", "±0.1768"]
    poor = next(line for line in lines if "poor+norm" in line)
    assert poor == ["2", "poor+norm", "1", "0.5000", "0.7500", "0.5000", "0.7500", "-"]


def test_a_table_says_what_it_is_about_and_who_is_left_out(boards):
    text = drawn(boards)
    for said in ("alpha: tvd", "lower is better", "mean over 2 tasks", "length 8", "quick/1", "task version 1"):
        assert said in text
    assert "lost+norm seed 0 has 1 of the 2 tasks and is left out" in text


def test_a_table_fits_the_width_of_its_console(boards):
    assert max(map(len, drawn(boards, 90).splitlines())) <= 90


def test_a_narrow_console_drops_whole_lengths_and_says_so(boards):
    text = drawn(boards, 62)
    assert "8       16       32" not in text and "  32" in text
    assert "0.3750" in text and "…" not in text
    assert "lengths left out for want of room" in text


def test_higher_is_better_for_the_other_metrics(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.5}, metric="accuracy"))
    assert "accuracy (higher is better)" in drawn(Results(tmp_path).boards("accuracy"))


def test_a_protocol_label_that_looks_like_markup_is_shown_as_it_is(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.5}, protocol="quick/1 model.kind=[red]x"))
    assert "model.kind=[red]x" in drawn(Results(tmp_path).boards("tvd"))


def test_markdown_holds_the_same_numbers_as_the_boards(boards):
    text = render.markdown(boards)
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert table[0] == ["", "entry", "seeds", "in range", "beyond", "8", "16", "32"]
    assert {len(line) for line in table} == {8}
    for row, line in zip(boards[0].rows, table[2:], strict=True):
        assert line[:2] == [str(row.rank), f"`{row.entry}`"]
        for length, shown in zip((8, 16, 32), line[5:], strict=True):
            cell = row.cell("length", length)
            assert shown == ("-" if cell is None else f"{cell.mean:.4f}" + (f" ± {cell.spread:.4f}" if row.seeds > 1 else ""))
    assert text.startswith("### alpha: tvd")
    assert "lost+norm seed 0" in text


def test_csv_has_one_line_a_cell_with_the_numbers_of_the_boards(boards):
    lines = list(csv.DictReader(io.StringIO(render.as_csv(boards))))
    (board,) = boards
    assert len(lines) == sum(len(row.cells) for row in board.rows)
    for line in lines:
        row = next(row for row in board.rows if row.entry == line["entry"])
        cell = row.cell(line["column"], int(line["length"]) if line["length"] else None)
        assert float(line["mean"]) == cell.mean
        assert (float(line["spread"]) if line["spread"] else None) == cell.spread
        assert (int(line["rank"]), int(line["seeds"]), int(line["diverged"])) == (row.rank, cell.seeds, cell.diverged)
        assert (line["board"], line["metric"], line["protocol"], line["task_version"]) == ("alpha", "tvd", "quick/1", "1")


def test_json_has_everything_that_a_board_has(boards):
    (found,) = json.loads(render.as_json(boards))
    (board,) = boards
    assert (found["name"], found["train_length"], found["tasks"]) == ("alpha", 8, 2)
    assert found["incomplete"] == list(board.incomplete)
    for row, shown in zip(board.rows, found["rows"], strict=True):
        assert (shown["rank"], shown["entry"]) == (row.rank, row.entry)
        assert [(c["kind"], c["length"], c["mean"], c["spread"]) for c in shown["cells"]] == [
            (c.kind, c.length, c.mean, c.spread) for c in row.cells
        ]


QUERY = "select entry, count(*) as rows, null as nothing, '[red]' as markup from results group by entry order by entry"


def test_an_answer_is_shown_as_a_table(opened):
    out = io.StringIO()
    render.answer(*opened.ask(QUERY), "table", Console(file=out, width=100))
    lines = [[cell.strip() for cell in line.split("│")][1:-1] for line in out.getvalue().splitlines() if "+norm" in line]
    assert lines == [["good+norm", "16", "", "[red]"], ["lost+norm", "2", "", "[red]"], ["poor+norm", "8", "", "[red]"]]


def test_an_answer_is_shown_as_csv(opened, capsys):
    render.answer(*opened.ask(QUERY), "csv", Console())
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert lines[0] == {"entry": "good+norm", "rows": "16", "nothing": "", "markup": "[red]"}
    assert len(lines) == 3


def test_an_answer_is_shown_as_json(opened, capsys):
    render.answer(*opened.ask(QUERY), "json", Console())
    lines = json.loads(capsys.readouterr().out)
    assert lines[0] == {"entry": "good+norm", "rows": 16, "nothing": None, "markup": "[red]"}


def test_an_answer_without_rows_is_still_an_answer(opened, capsys):
    render.answer(*opened.ask("select entry from results where false"), "csv", Console())
    assert capsys.readouterr().out == "entry\n"
    render.answer(*opened.ask("select entry from results where false"), "json", Console())
    assert json.loads(capsys.readouterr().out) == []


def test_json_is_valid_whatever_the_numbers(opened, capsys):
    render.answer(*opened.ask("select 'nan'::double as x, 'inf'::double as y, 0.5::double as z"), "json", Console())

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(capsys.readouterr().out, parse_constant=refuse)[0]["z"] == 0.5
