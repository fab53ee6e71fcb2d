"""`lgbench list`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.options import plugin_option
from lgbench.cli.output import console, echo
from lgbench.cli.setup import installed
from lgbench.extensions.describe import KINDS
from lgbench.terminal import printable


@click.command(name="list")
@click.argument("kind", type=click.Choice(list(KINDS)))
@plugin_option
def list_names(kind: str, plugins: Sequence[Path]) -> None:
    """List tasks, architectures, parts, metrics and other things.

    Each line has a name and a sentence about it; `lgbench show NAME` says more. Metrics are a table: whether a lower or a
    higher value is better, the range of values, the threshold of the effective length, and whether contexts or strings are
    measured.
    """
    from lgbench.extensions import describe

    registry = installed(plugins)
    if kind == "metrics":
        _print_table(describe.METRIC_COLUMNS, describe.metric_table(registry))
        return
    for name, about in describe.summaries(kind, registry):
        echo(printable(f"{name:<24}{about}".rstrip()))


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in row))
    console().print(table, highlight=False)
