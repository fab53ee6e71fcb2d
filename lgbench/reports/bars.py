"""Two distributions side by side in a terminal, as bars."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from rich import box
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lgbench.terminal import printable

MAX_ROWS = 16
"""Maximum number of answers. With more, only the answers with most probability under either distribution, in the task's order.
"""
WIDTH = 24
"""Maximum width of a bar, in characters."""


def bars(answers: Sequence[str], p: Sequence[float], right: Sequence[float] | None, console: Console) -> None:
    """Print p, with p* beside p where known."""
    columns = {"p": p} if right is None else {"p": p, "p*": right}
    shown, width = _most(list(columns.values())), max(4, min(WIDTH, console.width // 2 - 16))
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("answer")
    for name in columns:
        table.add_column(name, justify="right")
        table.add_column("", width=width)
    for place in shown:
        cells: list[RenderableType] = [Text(printable(answers[place]))]
        for values in columns.values():
            cells += [f"{values[place]:.4f}", _bar(values[place], width, console.encoding)]
        table.add_row(*cells)
    console.print(table, highlight=False)
    if left := len(answers) - len(shown):
        sums = ", ".join(
            f"{name} {sum(v for place, v in enumerate(values) if place not in shown):.4f}" for name, values in columns.items()
        )
        console.print(f"and {left} more answers, which have together {sums}", highlight=False)


def _most(distributions: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the answers to print."""
    places = range(len(distributions[0]))
    most = sorted(places, key=lambda place: -max(_finite(values[place]) for values in distributions))
    return sorted(most[:MAX_ROWS])


def _bar(value: float, width: int, encoding: str) -> RenderableType:
    share = _finite(value)
    if encoding.lower().startswith("utf"):
        return Bar(1.0, 0.0, share, width=width)
    return "#" * round(share * width)


def _finite(value: float) -> float:
    return value if isfinite(value) else 0.0
