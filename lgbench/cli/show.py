"""`lgbench show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.option_types import Names
from lgbench.cli.options import plugin_option
from lgbench.cli.output import echo
from lgbench.cli.setup import installed
from lgbench.extensions.describe import KINDS


@click.command()
@click.argument("name", type=Names(*KINDS))
@plugin_option
def show(name: str, plugins: Sequence[Path]) -> None:
    """Show one thing: its rule, its sizes and its options.

    NAME is anything that `lgbench list` prints, or a family of tasks. A task comes with three sample contexts and p*.
    """
    from lgbench.extensions import describe

    echo(describe.page(name, installed(plugins)))
