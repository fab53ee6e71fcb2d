"""`lgbench predictors`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import board_options, format_option, results_option
from lgbench.cli.output import complain, console, echo, echo_data
from lgbench.cli.setup import opened
from lgbench.errors import UsageError


@click.command()
@board_options("Metric to predict.")
@click.option(
    "--times",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Read probes at the longest length that boards show up to so many times the training length.",
)
@format_option("markdown", "json")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Draw it, too: a file whose name ends with .png, .svg, .pdf, or .json for the Vega-Lite specification.",
)
@results_option
def predictors(
    task: str | None, metric: str, protocol: str | None, times: int, form: str, out: Path | None, results: Path
) -> None:
    """Show which probe tells how well models do on longer inputs.

    The rank correlation (Spearman) of each probe with the metric beyond the training range, over the entries and seeds of each
    task, and its mean over the tasks of a family. Intervals are over entries. Runs need probes: `lgbench run --probe all`.
    """
    from lgbench.reports import plots, predictor_figure
    from lgbench.reports.analyses import predictor_tables
    from lgbench.reports.tables import as_json, markdown, show
    from lgbench.results.predictors import predictors as found_in

    if out:
        plots.known_format(out)
    runs = opened(results)
    found = found_in(runs, metric, task, protocol, times)
    uses = list(dict.fromkeys(str(each.protocol) for each in found))
    if out and len(uses) > 1:
        raise UsageError(f"a figure is of one protocol, and these runs have {', '.join(uses)}; choose with --protocol")
    (about, *_) = (each for each in runs.metrics if each.name == metric)
    tables = predictor_tables(found, about)
    if form == "json":
        echo_data(as_json([vars(each) | {"protocol": str(each.protocol), "metric": about.name} for each in found]))
    elif form == "markdown":
        echo_data("\n".join(map(markdown, tables)))
    else:
        for table in tables:
            show(table, console())
    if out:
        plots.write(predictor_figure.figure(found, about, times), out)
        if form == "table":
            echo(out)
        else:  # standard output has the data alone
            complain(f"the figure is in {out}")
