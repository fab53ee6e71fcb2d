"""Tables of results, with writers for a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Lines
from rich.text import Text

from lgbench.terminal import printable

LEAST_TEXT = 12
"""Minimum characters of a line of text in a narrow column before words are broken."""


@dataclass(frozen=True)
class Column:
    """Column of numbers or text."""

    name: str
    text: bool = False
    """Whether cells are text: left-aligned and breakable anywhere. Numbers are never broken."""
    group: int = 0
    """Priority on a narrow terminal: columns of the highest group are left out first, columns of group 0 never."""


@dataclass(frozen=True)
class Styled:
    """Text with a style of rich, and a shorter form for a narrow terminal. Markdown knows the styles `code` and `bold`."""

    text: str
    style: str = ""
    short: str | None = None
    mark: str = ""
    """Text after both forms."""


@dataclass(frozen=True)
class Interval:
    """Estimate with a 95 % interval and a verdict. A terminal shows the interval on a separate line."""

    value: float
    low: float | None
    high: float | None
    digits: int = 4
    sign: str = ""
    verdict: str = ""


Cell = str | Styled | Interval
Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Table:
    """Title, columns, rows, and sentences below the rows."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def show(table: Table, console: Console) -> None:
    """Print a table, never wider than the terminal.

    On a narrow terminal, names become short, then columns are left out, then text is wrapped. A pipe (a console without
    wrapping) gets lines as wide as the widest cells.
    """
    shown, texts, widths = _fitting(table, console)
    lines = Lines(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, width in zip(shown, widths, strict=True):
        column = table.columns[place]
        header = "\n".join(wrap(printable(column.name), width) or [""])
        whole = width >= _natural(column, [row[place] for row in texts])
        side: Literal["left", "right"] = "left" if column.text else "right"
        lines.add_column(Text(header), justify=side, width=width, overflow="fold", no_wrap=whole)  # wrapping is slow
    for row in texts:
        lines.add_row(*(_folded(row[place], width) for place, width in zip(shown, widths, strict=True)))
    if table.title:
        say(table.title, console, "bold")
    if console.soft_wrap:  # rich folds lines wider than the console
        console.width = max(console.width, sum(widths) + 2 * len(widths))
    console.print(lines, soft_wrap=False, highlight=False)
    if left := [column.name for place, column in enumerate(table.columns) if place not in shown]:
        say(f"no room for {', '.join(left)}; a wider terminal or another format has all columns", console, "dim")
    for note in table.notes:
        say(note, console)


def fits(table: Table, console: Console) -> bool:
    """Whether the terminal has room for all columns."""
    return len(_fitting(table, console)[0]) == len(table.columns)


def say(text: str, console: Console, style: str = "") -> None:
    """Print a sentence, wrapped between words."""
    console.print(Text(printable(text), style=style), highlight=False)


def markdown(table: Table) -> str:
    """GitHub table with the title above and notes as paragraphs below."""
    rule = [":--" if column.text else "--:" for column in table.columns]
    header = [column.name for column in table.columns]
    lines = [header, rule, *([_markdown(cell) for cell in row] for row in table.rows)]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    title = [f"### {table.title}\n\n"] if table.title else []
    return "".join([*title, *(f"| {' | '.join(line)} |\n" for line in escaped), *(f"\n{note}\n" for note in table.notes)])


def as_csv(names: Sequence[str], rows: Rows) -> str:
    """Lines of CSV with a header."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([names, *rows])
    return out.getvalue()


def as_json(content: Any) -> str:
    """JSON of dataclasses and plain values. NaN and infinity become null, because JSON has no word for either."""
    text = msgspec.json.Encoder(enc_hook=str, decimal_format="number").encode(content)  # DuckDB's 1.5 is a decimal
    return msgspec.json.format(text, indent=1).decode() + "\n"


def _markdown(cell: Cell) -> str:
    if isinstance(cell, Interval):
        value = f"{cell.value:{cell.sign}.{cell.digits}f}"
        ends = "" if cell.low is None else f" [{cell.low:{cell.sign}.{cell.digits}f}, {cell.high:{cell.sign}.{cell.digits}f}]"
        return f"{value}{ends} {cell.verdict}".rstrip()
    if isinstance(cell, Styled):
        mark = {"code": "`", "bold": "**"}.get(cell.style, "")
        return f"{mark}{cell.text}{mark}{cell.mark}"
    return cell


def _text(cell: Cell, short: bool = False) -> Text:
    if isinstance(cell, Interval):
        text = Text(f"{cell.value:{cell.sign}.{cell.digits}f} {cell.verdict}".rstrip())
        if cell.low is not None and cell.high is not None:
            form = f"{cell.sign}.{min(cell.digits, 3)}f"
            text.append(f"\n{cell.low:{form}} {cell.high:{form}}", style="dim")
        return text
    if isinstance(cell, Styled):
        shown = cell.short if short and cell.short is not None else cell.text
        return Text(printable(shown + cell.mark, lines=True), style="" if cell.style == "code" else cell.style)
    return Text(printable(cell, lines=True))


def _fitting(table: Table, console: Console) -> tuple[list[int], list[list[Text]], list[int]]:
    """Indices of shown columns, all cells, and widths of shown columns."""
    full = [[_text(cell) for cell in row] for row in table.rows]
    short = [[_text(cell, short=True) for cell in row] for row in table.rows]
    every = list(range(len(table.columns)))
    for shown, texts in [(every, full), *((shown, short) for shown in _fewer(table.columns, least_group=2))]:
        widths = [_natural(table.columns[place], [row[place] for row in texts]) for place in shown]
        if sum(widths) + 2 * len(widths) <= console.width:
            return shown, texts, widths
    if console.soft_wrap:
        return shown, full, [_natural(table.columns[place], [row[place] for row in full]) for place in shown]
    for shown, breaking in [(each, breaking) for breaking in (False, True) for each in _fewer(table.columns, least_group=1)]:
        natural = [_natural(table.columns[place], [row[place] for row in short]) for place in shown]
        least = [_least(table.columns[place], [row[place] for row in short], breaking) for place in shown]
        if (room := console.width - 2 * len(shown)) >= sum(least):
            return shown, short, _narrowed(natural, least, room)
    while len(shown) > 1 and sum(least) + 2 * len(shown) > console.width:
        shown, least = shown[:-1], least[:-1]
    return shown, short, least


def _fewer(columns: Sequence[Column], least_group: int) -> Iterator[list[int]]:
    """Indices of fewer and fewer columns: the highest group shrinks first, evenly spread, and the last of a group goes last."""
    shown = list(range(len(columns)))
    yield shown
    for group in sorted({column.group for column in columns if column.group >= least_group}, reverse=True):
        own = [place for place, column in enumerate(columns) if column.group == group]
        lower = [place for place, column in enumerate(columns) if column.group < group]
        for count in range(len(own) - 1, -1, -1):
            kept = spread(own, count)
            yield sorted([*lower, *kept])


def spread(values: Sequence[int], count: int) -> list[int]:
    """Evenly spread `count` of the values, including the last value.

    >>> spread([16, 32, 64, 128], 2), spread([16, 32, 64, 128], 1), spread([16, 32], 0)
    ([16, 128], [128], [])
    """
    last = len(values) - 1
    return sorted({values[last - round(i * last / max(1, count - 1))] for i in range(count)})


def _natural(column: Column, cells: Sequence[Text]) -> int:
    """Width without broken cells. Names of columns may span several lines."""
    lines = [line for cell in cells for line in cell.plain.split("\n")]
    return max(map(cell_len, [*_words(column.name), *lines]), default=1)


def _least(column: Column, cells: Sequence[Text], breaking: bool) -> int:
    """Width without broken words, or with `breaking` without broken numbers."""
    words = max((cell_len(word) for cell in cells for word in cell.plain.split()), default=1)
    name = max(map(cell_len, _words(column.name)), default=1)
    return max(name, min(words, LEAST_TEXT) if column.text and breaking else words)


def _folded(text: Text, width: int) -> Text:
    """Cell whose words beyond the width are broken after + and -, where names have their joints; rich breaks them anywhere."""
    ends: list[int] = []
    for word in re.finditer(r"\S+", text.plain):
        start = word.start()
        for part in re.finditer(r"[^+-]+[+-]*|[+-]+", word[0]):
            if word.start() + part.end() - start > width and part.start():
                start = word.start() + part.start()
                ends.append(start)
    return Text("\n").join(text.divide(ends)) if ends else text


def _words(name: str) -> list[str]:
    return wrap(printable(name), 1, break_long_words=False) or [""]


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths within the room, at least `least` each. Columns with most space to spare shrink first."""
    found = list(widths)
    while sum(found) > room:
        place = max(range(len(found)), key=lambda place: found[place] - least[place])
        found[place] -= 1
    return found
