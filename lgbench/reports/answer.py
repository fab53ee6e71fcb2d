"""The answer to a query, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.terminal import printable

Rows = Sequence[Sequence[Any]]


def table(names: Sequence[str], rows: Rows, console: Console) -> None:
    """For a terminal."""
    lines = Table()
    for name in names:
        lines.add_column(escape(printable(name)))
    for row in rows:
        lines.add_row(*("" if value is None else escape(printable(str(value))) for value in row))
    console.print(lines)


def as_csv(names: Sequence[str], rows: Rows) -> str:
    """With a header."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([names, *rows])
    return out.getvalue()


def as_json(names: Sequence[str], rows: Rows) -> str:
    """An array with an object for each row."""
    objects = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
    return json.dumps(objects, indent=1, default=str) + "\n"


FORMATS: dict[str, Callable[[Sequence[str], Rows], str]] = {"csv": as_csv, "json": as_json}


def _plain(value: Any) -> Any:
    """JSON has no word for a number that is not finite."""
    return None if isinstance(value, float) and not isfinite(value) else value
