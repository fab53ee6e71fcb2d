"""`lgbench leaderboard`."""

from __future__ import annotations

import click

from lgbench.cli.options import board_options, results_option
from lgbench.cli.output import console, echo_data
from lgbench.cli.setup import boards
from lgbench.results.addresses import Place


@click.command()
@board_options("Metric to rank by.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "csv", "json"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@results_option
def leaderboard(task: str | None, metric: str, protocol: str | None, form: str, results: Place) -> None:
    """Rank entries. Entries that are not significantly different share a tier.

    A board shows means over seeds with 95 % intervals: over the in-distribution lengths (ID), over the out-of-distribution
    lengths (OOD), and at each length from the training length on. The rank interval has the best and the worst rank that
    an entry may have. The effective length is the longest length up to which the mean is better than the metric's
    threshold, in training lengths.
    """
    from lgbench.reports import table

    found = boards(results, metric, task, protocol)
    if form == "table":
        table.table(found, console())
    else:
        echo_data(table.FORMATS[form](found))
