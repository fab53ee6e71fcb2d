"""Comparisons as a table, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.reports.markdown import pipes
from lgbench.results.compare import Comparison


def table(found: Sequence[Comparison], console: Console) -> None:
    """Comparisons for a terminal: a verdict, and below it the differences at every length."""
    for comparison in found:
        console.print(comparison.verdict, style="bold", highlight=False, markup=False, soft_wrap=True)
        lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        header, *rows = _cells(comparison)
        for name in header:
            lines.add_column(escape(name), justify="right", overflow="fold")
        for row in rows:
            lines.add_row(*row)
        console.print(lines)


def markdown(found: Sequence[Comparison]) -> str:
    """Comparisons as GitHub tables."""
    parts = []
    for comparison in found:
        header, *rows = _cells(comparison)
        parts.append("\n".join([comparison.verdict, "", *pipes([header, ["--:"] * len(header), *rows])]))
    return "\n\n".join(parts) + "\n"


def as_json(found: Sequence[Comparison]) -> str:
    """Comparisons as they are."""
    return json.dumps([asdict(comparison) for comparison in found], indent=1) + "\n"


FORMATS = {"markdown": markdown, "json": as_json}


def _cells(comparison: Comparison) -> list[list[str]]:
    """The header, the difference at every length, and the difference of the means. A star marks what is significant."""
    rows = [["length", comparison.first, comparison.second, "difference", "95 % interval", "seeds", "p"]]
    for difference in (*comparison.lengths, comparison.mean):
        name = difference.kind if difference.length is None else str(difference.length)
        ends = "-" if difference.low is None else f"{difference.low:+.4f} {difference.high:+.4f}"
        values = (f"{difference.first:.4f}", f"{difference.second:.4f}", f"{difference.difference:+.4f}")
        rows.append([name, *values, ends, str(difference.n), f"{difference.p:.2g}{' *' if difference.significant else ''}"])
    return rows
