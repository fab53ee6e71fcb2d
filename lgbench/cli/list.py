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
        from lgbench.reports.tables import Column, Table, show

        columns = [Column(name, text=True) for name in describe.METRIC_COLUMNS]
        show(Table("", columns, describe.metric_table(registry)), console())
        return
    for name, about in describe.summaries(kind, registry):
        echo(printable(f"{name:<24}{about}".rstrip()))
