"""`lgbench sql`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import format_option, results_option
from lgbench.cli.output import console, echo_data
from lgbench.cli.setup import opened


@click.command()
@click.argument("query")
@format_option("csv", "json")
@click.option("--unsafe", is_flag=True, help="Let the query read and write other files, and load extensions of DuckDB.")
@results_option
def sql(query: str, form: str, unsafe: bool, results: Path) -> None:
    """Query the tables `results` and `final` in DuckDB's SQL.

    `results` has every row. `final` has those that boards are made from: what was measured at the end of a training. The query
    can read these tables and nothing else, unless --unsafe is given.

    For example: lgbench sql "select entry, avg(value) from final where metric = 'tvd' and length = 64 group by all"
    """
    from lgbench.reports.analyses import answer_table
    from lgbench.reports.tables import as_csv, as_json, show

    table = opened(results)
    if not unsafe:
        table.guard()
    names, rows = table.ask(query)
    if form == "table":
        show(answer_table(names, rows), console())
    elif form == "csv":
        echo_data(as_csv(names, rows))
    else:
        echo_data(as_json([dict(zip(names, row, strict=True)) for row in rows]))
