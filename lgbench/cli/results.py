"""`lgbench leaderboard`, `compare`, `predictors`, `sql` and `site`: commands that read results."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import baseline_option, board_options, claims_option, format_option, protocol_option, results_option
from lgbench.cli.output import boards_of, complain, console, echo, echo_data, opened
from lgbench.errors import UsageError


@click.command()
@board_options("Metric to rank by.")
@format_option("markdown", "csv", "json")
@baseline_option
@results_option
def leaderboard(task: str | None, metric: str, protocol: str | None, form: str, baseline: str | None, results: Path) -> None:
    """Rank entries. Entries of one tier are not significantly different.

    A board shows means over seeds with 95 % intervals: over the in-distribution lengths (ID), over the out-of-distribution
    lengths (OOD), and at each length from the training length on. The rank interval has the best and the worst rank that
    an entry may have. The effective length is the longest length up to which the mean is better than the metric's
    threshold, in training lengths. Each entry is also compared with the baseline alone.

    Without --task, the first board has all families together, for the entries that ran all of them.
    """
    from lgbench.reports import boards

    runs = opened(results)
    found = boards_of(runs, metric, task, protocol, baseline)
    summary = runs.overall(metric, protocol, baseline=baseline) if task is None else []
    if form == "table":
        boards.show_boards(found, console(), summary)
    else:
        echo_data(boards.FORMATS[form](found, summary))


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
    found = compared(runs, first, second, metric, task, protocol)
    if form == "json":
        echo_data(as_json(found))
        return
    tables = [comparison_table(each) for each in found]
    if form == "markdown":
        echo_data("\n".join(map(markdown, tables)))
    else:
        for table in tables:
            show(table, console())


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
    """Show how well probes predict length generalization.

    The table has the rank correlation (Spearman) of each probe with the metric beyond the training range. Correlations are over
    the entries and seeds of a task, with means over the tasks of a family. Intervals are over entries. Runs need probes:
    `lgbench run --probe all`.
    """
    from lgbench.reports import plots
    from lgbench.reports.analyses import predictor_tables
    from lgbench.reports.probe_figures import predictor_figure
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
        plots.write(predictor_figure(found, about, times), out)
        if form == "table":
            echo(out)
        else:  # standard output has the data alone
            complain(f"the figure is in {out}")


@click.command()
@click.argument("query")
@format_option("csv", "json")
@click.option("--unsafe", is_flag=True, help="Let the query read and write other files, and load extensions of DuckDB.")
@results_option
def sql(query: str, form: str, unsafe: bool, results: Path) -> None:
    """Query the tables `results` and `final` in DuckDB's SQL.

    `results` has all rows. `final` has the rows of boards, measured at the end of training. Without --unsafe, the query can
    read only the two tables.

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


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("site"),
    show_default=True,
    help="Folder for the page, index.html. A page that is already there is replaced.",
)
@claims_option
@protocol_option
@baseline_option
@results_option
def site(out: Path, claims_folder: Path | None, protocol: str | None, baseline: str | None, results: Path) -> None:
    """Write all boards as one HTML page for offline use.

    The page has all boards with curves. For each entry the page shows seeds, training curves, settings and origins of runs.
    Claims with at least one verdict from the runs are included.
    """
    from lgbench.claims.claim import default_folder, read_claims
    from lgbench.reports import site as pages

    claims = read_claims(claims_folder or default_folder())
    runs = opened(results)
    page = pages.page(runs, protocol, baseline, claims)
    path = pages.write(page, out)
    echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
