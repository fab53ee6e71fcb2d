"""Whether a table fits a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

MAX_WIDTH = 1000
"""No board needs more columns of a terminal than this."""


def fits(lines: Table, console: Console) -> bool:
    """Whether no cell has to go over several lines."""
    return console.measure(lines, options=console.options.update(max_width=MAX_WIDTH)).maximum <= console.width
