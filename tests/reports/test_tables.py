"""Tables at the widths of terminals: no line is wider, and no number is cut."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from rich.console import Console

from lgbench.reports.tables import Column, Interval, Styled, Table, as_csv, as_json, markdown, show

WIDTHS = (60, 80, 120)
NAME = "transformer+pre-norm+deltanet-negative@bema"


def table(lengths: int = 9) -> Table:
    columns = [
        *(Column("tier"), Column("entry", text=True), Column("OOD"), Column("against baseline", group=1)),
        *(Column(str(2**place), group=2) for place in range(lengths)),
    ]
    better = Interval(-0.1234, -0.2345, -0.0123, sign="+", verdict="better")
    cells = [Interval(0.1 + place / 1000, 0.05, 0.15) for place in range(lengths)]
    rows = [["1", Styled(NAME, "code", "deltanet-negative@bema"), Interval(0.4321, 0.4, 0.5), better, *cells]]
    rows += [["", Styled("context-free baseline", "dim"), Styled("0.6543", "dim"), "", *["-"] * lengths]]
    return Table("a title of many words " * 4, columns, rows, ["A note of many words, which ends with a full stop. " * 3])


def shown(content: Table, width: int, **options) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    show(content, console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lengths", [0, 3, 9])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(width, lengths):
    text = shown(table(lengths), width)
    assert max(map(len, text.splitlines())) <= width
    numbers = set(re.findall(r"[+-]?\d+\.\d+", text))
    whole = {"0.4321", "0.400", "0.500", "0.6543", "-0.1234", "-0.234", "-0.235", "-0.012", "0.050", "0.150"}
    assert numbers <= whole | {f"{0.1 + place / 1000:.4f}" for place in range(lengths)}
    assert {"0.4321", "0.400", "0.500", "0.6543"} <= numbers and "…" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_every_column_is_shown_or_named_below(width):
    text = shown(table(), width)
    missing = re.search(r"no room for (.*?);", text.replace("\n", " "))
    header = text[: text.index("─")].split()
    named = missing[1].split(", ") if missing else []
    assert {str(2**place) for place in range(9)} - set(header) <= set(named)
    assert not set(named) & {"tier", "entry", "OOD"}
    assert "256" in header or "256" in named


def test_a_pipe_has_whole_cells_on_lines_of_their_own():
    long = Table("", [Column("query", text=True), Column("n")], [["word " * 100, "12"]])
    assert " ".join(["word"] * 100) in shown(long, 200, soft_wrap=True)
    assert max(map(len, shown(long, 80).splitlines())) <= 80


def test_only_text_is_broken_where_even_words_have_no_room():
    text = shown(Table("", [Column("entry", text=True), Column("value")], [["x" * 100, "0.123456789012345"]]), 40)
    assert "0.123456789012345" in text and text.count("x") == 100 and max(map(len, text.splitlines())) <= 40


@pytest.mark.parametrize("width", [20, 30])
def test_a_name_without_room_is_broken_at_its_joints(width):
    content = Table("", [Column("test", text=True)], [[Styled(f"{NAME} against lstm", "bold")]])
    _, _, *lines = shown(content, width).split()
    pieces = re.findall(r"[^+-]+[+-]?", NAME)
    assert "".join(lines) == f"{NAME}againstlstm" and len(lines) > 3
    assert all(line.endswith(("+", "-", pieces[-1], "against", "lstm")) for line in lines)


def test_names_of_strangers_move_and_colour_nothing():
    text = shown(Table("[red]t", [Column("a[/b]", text=True)], [["[bold]\x1b[31mx"]]), 80)
    assert "[red]t" in text and "a[/b]" in text and "[bold]\\x1b[31mx" in text and "\x1b" not in text


def test_markdown_has_the_whole_names_and_intervals_on_one_line():
    title, _, header, rule, row, context_free, _, note = markdown(table(1)).splitlines()
    assert title.startswith("### a title") and note.startswith("A note")
    assert rule == "| --: | :-- | --: | --: | --: |" and header.count("|") == rule.count("|") == row.count("|")
    assert f"| `{NAME}` | 0.4321 [0.4000, 0.5000] | -0.1234 [-0.2345, -0.0123] better |" in row
    assert context_free == "|  | context-free baseline | 0.6543 |  | - |"
    assert "| a \\| b |" in markdown(Table("", [Column("x")], [["a | b"]]))


def test_csv_and_json_are_read_back():
    assert list(csv.reader(io.StringIO(as_csv(["a", "b"], [[1, 'x,"y']])))) == [["a", "b"], ["1", 'x,"y']]
    assert json.loads(as_json({"own": [Column("n")], "lost": float("nan"), "far": (float("inf"), 0.5)})) == {
        "own": [{"name": "n", "text": False, "group": 0}],
        "lost": None,
        "far": [None, 0.5],
    }
