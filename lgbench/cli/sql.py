"""`lgbench sql`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import results_option
from lgbench.cli.setup import console, opened


@click.command()
@click.argument("query")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@results_option
def sql(query: str, form: str, results: Path) -> None:
    """Query the table `results` in DuckDB's SQL.

    For example: lgbench sql "select entry, avg(value) from results where metric = 'tvd' and length = 64 group by all"
    """
    from lgbench.reports import answer

    names, rows = opened(results).ask(query)
    if form == "table":
        answer.table(names, rows, console())
    else:
        click.echo(answer.FORMATS[form](names, rows), nl=False)
