"""`lgbench compare`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import board_options, format_option, results_option
from lgbench.cli.output import console, echo_data
from lgbench.cli.setup import opened, warn


@click.command()
@click.argument("first")
@click.argument("second")
@board_options("Metric to compare by.")
@format_option("markdown", "json")
@results_option
def compare(first: str, second: str, task: str | None, metric: str, protocol: str | None, form: str, results: Path) -> None:
    """Test whether two entries are significantly different.

    Seeds pair up, for the same seed means the same data and the same test contexts. Names of entries are those of the
    leaderboard, or short: peri-norm, peri-norm@bema.
    """
    from lgbench.reports.analyses import comparison_table
    from lgbench.reports.tables import as_json, markdown, show
    from lgbench.results.compare import compare as compared

    runs = opened(results)
    try:
        found = compared(runs, first, second, metric, task, protocol)
    finally:
        warn(runs.no_boards)
    if form == "json":
        echo_data(as_json(found))
        return
    tables = [comparison_table(each) for each in found]
    if form == "markdown":
        echo_data("\n".join(map(markdown, tables)))
    else:
        for table in tables:
            show(table, console())
