"""Boards as a table, Markdown, CSV or JSON. Nothing is computed here."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.leaderboard import Board, Cell, Row

DIRECTION = {"tvd": "lower is better", "accuracy": "higher is better", "roc_auc": "higher is better"}

WIDEST = 1000
"""Columns no board needs more than."""


def table(boards: Sequence[Board], console: Console) -> None:
    """Boards for a terminal: the mean over seeds, below it the standard deviation; as many lengths as have room."""
    for board in boards:
        for count in range(len(board.lengths), -1, -1):
            lengths = _spread(board.lengths, count)
            lines = _table(board, lengths)
            if console.measure(lines, options=console.options.update(max_width=WIDEST)).maximum <= console.width:
                break
        console.print(escape(_title(board)), style="bold", highlight=False)
        console.print(lines)
        if len(lengths) < len(board.lengths):
            console.print("lengths left out for want of room; a wider terminal or --format shows them all", style="dim")
        for note in board.incomplete:
            console.print(note, highlight=False, markup=False)


def _table(board: Board, lengths: Sequence[int]) -> Table:
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    lines.add_column("", justify="right")
    lines.add_column("entry", no_wrap=True)
    for name in ("seeds", "in range", "beyond", *(str(length) for length in lengths)):
        lines.add_column(name, justify="right", no_wrap=True)
    for row in board.rows:
        lines.add_row(str(row.rank), row.entry, _seeds(row), *(_two_lines(cell) for cell in _cells(row, lengths)))
    return lines


def _spread(lengths: Sequence[int], count: int) -> list[int]:
    """`count` of the lengths, evenly spread, the longest among them.

    >>> _spread([16, 32, 64, 128], 2), _spread([16, 32, 64, 128], 1)
    ([16, 128], [128])
    """
    last = len(lengths) - 1
    return sorted({lengths[last - round(i * last / max(1, count - 1))] for i in range(count)})


def markdown(boards: Sequence[Board]) -> str:
    """Boards as GitHub tables."""
    parts = []
    for board in boards:
        header = ["", "entry", "seeds", "in range", "beyond", *(str(length) for length in board.lengths)]
        rows = [
            [str(row.rank), f"`{row.entry}`", _seeds(row), *map(_one_line, _cells(row, board.lengths))] for row in board.rows
        ]
        rule = ["--:", ":--", *["--:"] * (len(header) - 2)]
        lines = ["| " + " | ".join(line) + " |" for line in [header, rule, *rows]]
        notes = [f"\n{note}" for note in board.incomplete]
        parts.append("\n".join([f"### {_title(board)}", "", *lines, *notes]))
    return "\n\n".join(parts) + "\n"


def as_csv(boards: Sequence[Board]) -> str:
    """One line a cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [
        "board",
        "metric",
        "task_version",
        "protocol",
        "rank",
        "entry",
        "column",
        "length",
        "mean",
        "spread",
        "seeds",
        "diverged",
    ]
    writer.writerow(names)
    for board in boards:
        for row in board.rows:
            for c in row.cells:
                about = [board.name, board.metric, board.task_version, board.protocol, row.rank, row.entry]
                writer.writerow([*about, c.kind, c.length, c.mean, c.spread, c.seeds, c.diverged])
    return out.getvalue()


def as_json(boards: Sequence[Board]) -> str:
    """Boards as they are."""
    return json.dumps([asdict(board) for board in boards], indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Board]], str]] = {"markdown": markdown, "csv": as_csv, "json": as_json}


def _title(board: Board) -> str:
    tasks = "" if board.tasks == 1 else f", mean over {board.tasks} tasks"
    return (
        f"{board.name}: {board.metric} ({DIRECTION[board.metric]}){tasks}, "
        f"trained to length {board.train_length}, protocol {board.protocol}, task version {board.task_version}"
    )


def _cells(row: Row, lengths: Sequence[int]) -> list[Cell | None]:
    return [row.cell("in range"), row.cell("score"), *(row.cell("length", length) for length in lengths)]


def _seeds(row: Row) -> str:
    return f"{row.seeds} ({row.diverged} diverged)" if row.diverged else str(row.seeds)


def _two_lines(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.mean:.4f}" + ("" if cell.spread is None else f"\n[dim]±{cell.spread:.4f}[/dim]")


def _one_line(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.mean:.4f}" + ("" if cell.spread is None else f" ± {cell.spread:.4f}")


def answer(names: Sequence[str], rows: Sequence[Sequence[Any]], form: str, console: Console) -> None:
    """The answer to a query, as a table, CSV or a JSON array of objects."""
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([names, *rows])
        print(out.getvalue(), end="")
    elif form == "json":
        objects = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
        print(json.dumps(objects, indent=1, default=str))
    else:
        lines = Table()
        for name in names:
            lines.add_column(escape(name))
        for row in rows:
            lines.add_row(*("" if value is None else escape(str(value)) for value in row))
        console.print(lines)


def _plain(value: Any) -> Any:
    """JSON has no word for a number that is not finite."""
    return None if isinstance(value, float) and not isfinite(value) else value
