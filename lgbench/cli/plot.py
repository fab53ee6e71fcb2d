"""`lgbench plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.cli.options import board_options, results_option, split
from lgbench.cli.output import complain, echo
from lgbench.cli.setup import boards
from lgbench.errors import UsageError
from lgbench.results.addresses import Place


@click.command()
@board_options("Metric to draw.")
@click.option(
    "--entry",
    "named",
    multiple=True,
    help="Entries to draw, named as on boards, joined by commas. Can be repeated.  [default: the raw weights of 8 entries]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File to write. Its name ends with .png, .svg, .pdf, or .json for the Vega-Lite specification.  "
    "[default: TASK-METRIC.png]",
)
@results_option
def plot(task: str | None, metric: str, protocol: str | None, named: Sequence[str], out: Path | None, results: Place) -> None:
    """Draw a metric against length, as a figure for a paper.

    The figure is 3.3 inches wide, as a column of a paper. Without --task it has a panel for each family. peri-norm is short for
    transformer+peri-norm. The order of the entries decides their colours and shapes.
    """
    from lgbench.reports import figure, plots

    path = out or Path(f"{task or 'overview'}-{metric}.png")
    plots.known_format(path)
    found = boards(results, metric, task, protocol)
    entries, left_out = plots.chosen(found, split(named))
    if left_out:
        others = ", ".join(left_out)
        complain(f"a figure has {plots.MAX_UNNAMED} colours; not drawn: {others}; choose with --entry")
    drawn = [board for board in found if any(row.entry in entries for row in board.rows)]
    if len(drawn) > plots.MAX_PANELS:
        most = f"a figure has {plots.MAX_PANELS} panels at most"
        raise UsageError(f"{len(drawn)} boards are found, and {most}; choose with --task or --protocol")
    plots.write(figure.figure(drawn, entries), path)
    echo(path)
