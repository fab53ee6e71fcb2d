"""`lgbench plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lgbench.commands.surroundings import board_options, boards, results_option
from lgbench.options import split


@click.command()
@board_options("What to draw.")
@click.option(
    "--entry", "named", multiple=True, help="Entries to draw, named as on boards.  [default: all raw weights, 8 at most]"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File to write: .png, .svg, .pdf, or .json for the Vega-Lite specification.  [default: TASK-METRIC.png]",
)
@results_option
def plot(task: str | None, metric: str, protocol: str | None, named: Sequence[str], out: Path | None, results: Path) -> None:
    """Draw a metric against length, as a figure for a column of a paper.

    --entry can be repeated, or take several names with commas between; peri-norm is short for transformer+peri-norm. The
    order of the names decides what each entry looks like.
    """
    from lgbench.showing import plots

    path = out or Path(f"{task or 'overview'}-{metric}.png")
    plots.known_format(path)
    found = boards(results, metric, task, protocol)
    entries, left_out = plots.chosen(found, split(named))
    if left_out:
        others = ", ".join(left_out)
        click.echo(f"lgbench: not drawn, since a figure has {plots.MOST} colours: {others}; --entry chooses", err=True)
    drawn = [board for board in found if any(row.entry in entries for row in board.rows)]
    plots.write(plots.figure(drawn, entries), path)
    click.echo(path)
