"""Boards and comparisons as a table, Markdown, CSV or JSON. Nothing is computed here."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.ranking.boards import LEARNED, LOWER_IS_BETTER, Board, Cell, Row
from lgbench.ranking.entries import short

if TYPE_CHECKING:
    from lgbench.ranking.compare import Comparison

WIDEST = 1000
"""Columns no board needs more than."""


def table(boards: Sequence[Board], console: Console) -> None:
    """Boards for a terminal: the mean over seeds, below it the 95 % interval; as many lengths as have room.

    Where not all have, names are short. Where there is no room even for the rest, cells go over several lines; nothing is cut.
    """
    for board in boards:
        names = [row.entry for row in board.rows]
        lengths, lines = board.lengths, _table(board, board.lengths, names)
        if not _fits(lines, console):
            for count in range(len(board.lengths), -1, -1):
                lengths = _spread(board.lengths, count)
                lines = _table(board, lengths, short(names))
                if _fits(lines, console):
                    break
        console.print(escape(_title(board)), style="bold", highlight=False)
        console.print(lines)
        if len(lengths) < len(board.lengths):
            console.print("lengths left out for want of room; a wider terminal or --format shows them all", style="dim")
        for note in notes(board):
            console.print(note, highlight=False, markup=False, soft_wrap=True)


def _fits(lines: Table, console: Console) -> bool:
    return console.measure(lines, options=console.options.update(max_width=WIDEST)).maximum <= console.width


def _table(board: Board, lengths: Sequence[int], names: Sequence[str]) -> Table:
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("tier", "places", "entry", "seeds", "in range", "beyond", "holds to", *(str(length) for length in lengths)):
        side: Literal["left", "right"] = "left" if name == "entry" else "right"
        lines.add_column(name, justify=side, no_wrap=bool(lengths), overflow="fold")
    for row, name in zip(board.rows, names, strict=True):
        lines.add_row(*_standing(row), escape(name), _seeds(row), *_numbers(board, row, lengths, _two_lines))
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
        header = ["tier", "places", "entry", "seeds", "in range", "beyond", "holds to", *map(str, board.lengths)]
        rows = [
            [*_standing(row), f"`{row.entry}`", _seeds(row), *_numbers(board, row, board.lengths, _one_line)]
            for row in board.rows
        ]
        rule = ["--:", "--:", ":--", *["--:"] * (len(header) - 3)]
        lines = ["| " + " | ".join(line) + " |" for line in [header, rule, *rows]]
        parts.append("\n".join([f"### {_title(board)}", "", *lines, *(f"\n{note}" for note in notes(board))]))
    return "\n\n".join(parts) + "\n"


def as_csv(boards: Sequence[Board]) -> str:
    """One line a cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    own = ("entry", "tier", "best_place", "worst_place", "effective_length", "seeds", "diverged", "unlearned")
    cell = ("mean", "low", "high", "n")
    writer.writerow(["board", "metric", "task_version", "protocol", *own, "column", "length", *cell])
    for board in boards:
        for row in board.rows:
            places = row.places or (None, None)
            about: list[Any] = [board.name, board.metric, board.task_version, board.protocol]
            about += [row.entry, row.tier, *places, row.effective_length, *map(len, (row.seeds, row.diverged, row.unlearned))]
            writer.writerows([*about, c.kind, c.length, *(getattr(c, name) for name in cell)] for c in row.cells)
    return out.getvalue()


def as_json(boards: Sequence[Board]) -> str:
    """Boards as they are."""
    return json.dumps([asdict(board) for board in boards], indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Board]], str]] = {"markdown": markdown, "csv": as_csv, "json": as_json}


def notes(board: Board) -> list[str]:
    """Sentences that belong under a board: what was not learned, and what is left out."""
    found = list(board.incomplete)
    seeds = sum(len(row.seeds) for row in board.rows)
    counts: Counter[str] = Counter()
    for row in board.rows:
        counts.update(row.unlearned_tasks)
    if counts:
        tasks = (
            f"{task} by {'all' if count == seeds else f'{count} of {seeds}'} seeds" for task, count in sorted(counts.items())
        )
        found.append(f"Not learned in the training range (mean TVD {LEARNED} or more): {', '.join(tasks)}.")
    return found


def _title(board: Board) -> str:
    tasks = "" if board.tasks == 1 else f", mean over {board.tasks} tasks"
    direction = "lower" if LOWER_IS_BETTER[board.metric] else "higher"
    return (
        f"{board.name}: {board.metric} ({direction} is better){tasks}, "
        f"trained to length {board.train_length}, protocol {board.protocol}, task version {board.task_version}"
    )


def _standing(row: Row) -> tuple[str, str]:
    if row.tier is None or row.places is None:
        return "-", "-"
    best, worst = row.places
    return str(row.tier), str(best) if best == worst else f"{best}-{worst}"


def _numbers(board: Board, row: Row, lengths: Sequence[int], show: Callable[[Cell | None], str]) -> list[str]:
    """In the training range, beyond it, the effective length, and at each of `lengths`."""
    cells = (show(row.cell("length", length)) for length in lengths)
    return [show(row.cell("in range")), show(row.cell("score")), holds_to(board, row), *cells]


def holds_to(board: Board, row: Row) -> str:
    """The effective length in training lengths, with >= where it is the longest measured."""
    if not row.effective_length:
        return "-"
    multiple = f"{row.effective_multiple:.0f}" if row.effective_multiple >= 100 else f"{row.effective_multiple:.3g}"
    return f"{'>=' if row.effective_length == board.all_lengths[-1] else ''}{multiple}x"


def _seeds(row: Row) -> str:
    flags = ((row.diverged, "diverged"), (row.unlearned, "unlearned"))
    flagged = [f"{len(seeds)} {what}" for seeds, what in flags if seeds]
    return f"{len(row.seeds)} ({', '.join(flagged)})" if flagged else str(len(row.seeds))


def _two_lines(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.mean:.4f}" + ("" if cell.low is None else f"\n[dim]{cell.low:.3f} {cell.high:.3f}[/dim]")


def _one_line(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.mean:.4f}" + ("" if cell.low is None else f" [{cell.low:.4f}, {cell.high:.4f}]")


def comparisons(found: Sequence[Comparison], console: Console) -> None:
    """Comparisons for a terminal: a verdict, and below it the differences at every length."""
    for comparison in found:
        console.print(comparison.verdict, style="bold", highlight=False, markup=False, soft_wrap=True)
        lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for name in _compared(comparison)[0]:
            lines.add_column(name, justify="right", overflow="fold")
        for row in _compared(comparison)[1:]:
            lines.add_row(*row)
        console.print(lines)


def comparisons_markdown(found: Sequence[Comparison]) -> str:
    """Comparisons as GitHub tables."""
    parts = []
    for comparison in found:
        header, *rows = _compared(comparison)
        lines = ["| " + " | ".join(line) + " |" for line in [header, ["--:"] * len(header), *rows]]
        parts.append("\n".join([comparison.verdict, "", *lines]))
    return "\n\n".join(parts) + "\n"


def comparisons_json(found: Sequence[Comparison]) -> str:
    """Comparisons as they are."""
    return json.dumps([asdict(comparison) for comparison in found], indent=1) + "\n"


COMPARISON_FORMATS = {"markdown": comparisons_markdown, "json": comparisons_json}


def _compared(comparison: Comparison) -> list[list[str]]:
    """Header and rows: the differences at every length, and the one that decides."""
    rows = [["length", comparison.first, comparison.second, "difference", "95 % interval", "seeds", "p"]]
    for difference in (*comparison.lengths, comparison.overall):
        name = {"score": "beyond", "in range": "in range"}.get(difference.kind, str(difference.length))
        ends = "-" if difference.low is None else f"{difference.low:+.4f} {difference.high:+.4f}"
        values = (f"{difference.first:.4f}", f"{difference.second:.4f}", f"{difference.difference:+.4f}")
        rows.append([name, *values, ends, str(difference.n), f"{difference.p:.2g}{' *' if difference.separated else ''}"])
    return rows


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
