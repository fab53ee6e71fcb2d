"""`lgbench leaderboard`, `compare`, `predictors`, `plot`, `sql` and `site`: commands that read results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lgbench.cli import options
from lgbench.cli.output import complain, console, echo, echo_data, installed
from lgbench.errors import UsageError
from lgbench.experiment.protocols import ALL_PROTOCOLS
from lgbench.terminal import printable

if TYPE_CHECKING:
    from lgbench.reports.tables import Table
    from lgbench.results.leaderboard import Results

MAX_NAMED = 5
"""Maximum number of protocols in a sentence."""


@click.command()
@options.board_options("Metric to rank by.")
@options.format_option("markdown", "csv", "json")
@options.baseline_option
@options.results_option
@options.gathered(options.BoardQuery, "query")
def leaderboard(query: options.BoardQuery, form: str, baseline: str | None) -> None:
    """Rank entries. No entry of a tier is significantly better (p < 0.001) than another of it.

    A board shows means over seeds with 95 % intervals: over the in-distribution lengths (ID), over the out-of-distribution
    lengths (OOD), and at each length from the training length on. The rank interval has the best and the worst rank that
    an entry may have. The effective length is the longest length up to which the mean is better than the metric's
    threshold, in training lengths. Each entry is also compared with the baseline alone.

    Without --task, the first board has the families of lgbench with runs here together, for the entries that ran all of
    them; other families, too, if fewer than two of these have runs. The last line names the protocols that are not shown.
    """
    from lgbench.reports import boards
    from lgbench.results.published import shown

    runs, metric = options.opened(query.results, query.beside), query.metric
    found, protocol, others = shown(runs, metric, query.task, query.protocol, baseline=baseline)
    runs.require_some(found, metric)
    summary = runs.overall(metric, protocol, baseline=baseline) if query.task is None else []
    if form == "csv":
        echo_data(boards.boards_csv(found, summary))
    else:
        _show(form, {"overall": summary, "boards": found}, boards.tables(found, summary, baseline is not None))
    _tell_of(others, form)


def _tell_of(protocols: Sequence[str], form: str) -> None:
    """Name the protocols that are not shown, after a table on standard output."""
    if protocols:
        named = ", ".join(protocols[:MAX_NAMED]) + (f" and {more} more" if (more := len(protocols) - MAX_NAMED) > 0 else "")
        sentence = f"there are also runs of {named}: --protocol NAME shows one, --protocol all shows all"
        if form == "table":
            echo(sentence)
        else:
            complain(sentence)


@click.command()
@click.argument("first")
@click.argument("second")
@options.board_options("Metric to compare by.")
@options.format_option("markdown", "json")
@options.results_option
@options.gathered(options.BoardQuery, "query")
def compare(first: str, second: str, query: options.BoardQuery, form: str) -> None:
    """Test whether two entries are significantly different.

    Seeds pair up, for the same seed means the same data and the same test contexts. Names of entries are those of the
    leaderboard, or short: peri-norm, peri-norm@bema. p is of a paired t-test over seeds, corrected (Holm) for the number of
    boards, or of lengths.
    """
    from lgbench.reports.analyses import comparison_table
    from lgbench.results.compare import compare as compared

    runs = options.opened(query.results, query.beside)
    protocol, others = runs.one_protocol(query.metric, query.task, query.protocol, (first, second))
    found = compared(runs, first, second, query.metric, query.task, protocol)
    _show(form, found, map(comparison_table, found))
    _tell_of(others, form)


@click.command()
@options.board_options("Metric to predict.")
@click.option(
    "--times",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Read probes at the longest length that boards show up to so many times the training length.",
)
@options.format_option("markdown", "json")
@options.results_option
@options.gathered(options.BoardQuery, "query")
def predictors(query: options.BoardQuery, times: int, form: str) -> None:
    """Show how well probes predict length generalization.

    The table has the rank correlation (Spearman) of each probe with the metric beyond the training range. Correlations are over
    the entries and seeds of a task, with means over the tasks of a family. Intervals are over entries. Runs need probes:
    `lgbench run --probe all`.
    """
    from lgbench.reports.analyses import predictor_tables
    from lgbench.results.predictors import probed

    runs = options.opened(query.results, query.beside)
    every = query.protocol == ALL_PROTOCOLS
    readings = probed(runs, query.metric, query.task, None if every else query.protocol, times)
    found = [each for own in (readings if every else readings[:1]) for each in own.predictors()]
    if not found:
        raise UsageError("no probe differs between these runs; make more of them with `lgbench run --probe all`")
    (about, *_) = (each for each in runs.metrics if each.name == query.metric)
    plain = [vars(each) | {"protocol": str(each.protocol), "metric": about.name} for each in found]
    _show(form, plain, predictor_tables(found, about))
    _tell_of(() if every else [str(each.protocol) for each in readings[1:]], form)


def _show(form: str, plain: Any, tables: Iterable[Table]) -> None:
    """Print tables, or the content of tables as JSON."""
    from lgbench.reports.tables import as_json, markdown, show

    if form == "json":
        echo_data(as_json(plain))
    elif form == "markdown":  # read in a terminal too, and has names of strangers
        echo_data(printable("\n".join(map(markdown, tables)), lines=True))
    else:
        for table in tables:
            show(table, console())


@click.command()
@options.board_options("Metric to draw.")
@click.option(
    "--entry",
    "named",
    multiple=True,
    callback=lambda ctx, option, names: options.split(names),
    help="Entries to draw, named as on boards, joined by commas. Can be repeated.  "
    "[default: the raw weights of the board's first 8]",
)
@click.option(
    "--x",
    "across",
    type=options.NameInResults(
        lambda results: ("length", "step", *(key for use in results.protocols.values() for key, _ in use.changes))
    ),
    metavar="[length|step|SETTING]",
    default="length",
    show_default=True,
    help="Draw against the length; against training steps: how good each entry was while it trained; or against a setting in "
    "which runs differ, such as model.width.",
)
@click.option(
    "--length",
    "lengths",
    type=options.lengths,
    help="With --x step or a setting, the lengths to draw, each in a panel, such as 40,80.  [default: 1, 2, 4 and 8 times the "
    "training length, as far as they were measured; the OOD mean against a setting]",
)
@click.option("--loglog", is_flag=True, help="Draw with logarithmic axes, as power laws are straight lines there.")
@click.option(
    "--fit",
    is_flag=True,
    help="Fit a power of the length to each entry, over all its lengths, and write its exponent N^... with its 95 % interval.",
)
@click.option("--layer", type=click.IntRange(1), help="Of a probe, the layer to draw.  [default: the mean over all]")
@click.option("--head", type=click.IntRange(1), help="Of a probe, the head to draw.  [default: the mean over all]")
@click.option("--heatmap", is_flag=True, help="Of a probe, draw a map of layers by lengths for each entry, not curves.")
@click.option(
    "--wide", is_flag=True, help="Draw as wide as a page of two columns, 6.75 inches, with up to four panels in a row."
)
@click.option(
    "--out",
    type=options.FILE,
    help="File to write. Its name ends with .png, .svg, .pdf, or .json for the Vega-Lite specification.  "
    "[default: TASK-METRIC.png, TASK-METRIC-by-step.png or TASK-METRIC-by-SETTING.png]",
)
@options.results_option
def plot(out: Path | None, results: Path, beside: str | None, **asked: Any) -> None:
    """Draw a metric against length, training steps or a setting.

    The figure is 3.3 inches wide, as a column of a paper; --wide makes it as wide as a page. Without --task it has a panel for
    each family. peri-norm is short for transformer+peri-norm. An entry has the same colour in all figures of these results;
    where two would share one, the second gets another.

    A probe of `lgbench run --probe` is drawn as the mean over layers and heads, or for one layer or head:

    lgbench plot --task max-retrieval --metric output_std --loglog --fit

    Against a setting, runs with otherwise equal settings form one line:

    lgbench plot --x model.width --task dyck

    There, --metric can also be gradient_norm, the largest while a model trained; loss_variance, of the training loss over the
    last half of the steps; or diverged, the share of seeds whose training diverged.
    """
    from lgbench.reports import files, plots

    request = plots.PlotRequest(**asked)
    path = out or request.path
    files.known_format(path, plots.FORMATS)  # before the work, not after it
    plots.write(plots.requested(options.opened(results, beside), request, complain), path)
    echo(path)


@click.command()
@click.argument("query")
@options.format_option("csv", "json")
@options.results_option
def sql(query: str, form: str, results: Path) -> None:
    """Query the tables `results` and `final` in DuckDB's SQL.

    `results` has all rows. `final` has the rows of boards, measured at the end of training. A third table, `facts`, has what
    is published about tasks, such as their class. The table that is printed rounds numbers; --format csv and json have all
    digits.

    For example, at length 64: lgbench sql "select task, entry, protocol, protocol_version, avg(value) from final where
    metric = 'tvd' and length = 64 and weights = 'raw' and cardinality(changes) = 0 group by all"
    """
    from lgbench.reports.analyses import answer_list, answer_table
    from lgbench.reports.tables import as_csv, fits

    runs = options.opened(results)
    names, rows = runs.ask(query)
    if form == "json" and (twice := [name for name, count in Counter(names).items() if count > 1]):
        raise UsageError(
            f"the query names several columns {twice[0]!r}: give each a name of its own, as in a.{twice[0]} as first"
        )
    if form == "csv":
        echo_data(as_csv(names, rows))
        return
    table = answer_table(names, rows, [] if rows else ["0 rows", *_of_files(query, runs)])
    if form == "table" and rows and not fits(table, console()):
        table = answer_list(names, rows)
    _show(form, [dict(zip(names, row, strict=True)) for row in rows], [table])


def _of_files(query: str, results: Results) -> Iterator[str]:
    """Sentence for each name in a query that the results have only with the hash of a plugin file."""
    from lgbench.results.entries import without_hashes

    _, rows = results.ask("select distinct unnest([family, task, entry]) from results")
    known, literals = {name for (name,) in rows if name}, re.findall(r"'([^']*)'", query)
    for full in sorted(known):
        name = without_hashes(full)
        if name in literals and name not in known:
            yield f"{name!r} is from a plugin file; in the results it is {full!r}"


@click.command()
@click.option(
    "--out",
    type=options.FILE,
    default=Path("site"),
    show_default=True,
    help="Folder for the page, index.html, and its data. A page of lgbench that is there is replaced.",
)
@click.option("--docs", metavar="ADDRESS", help="Address of the documentation, for links; it may be relative to the page.")
@options.claims_option
@options.protocol_option("all")
@options.baseline_option
@options.plugin_option
@options.beside_option
@options.results_option
def site(
    out: Path,
    docs: str | None,
    claims_folder: Path | None,
    protocol: str | None,
    baseline: str | None,
    plugins: Sequence[Path],
    beside: str | None,
    results: Path,
) -> None:
    """Write all boards as pages for offline use.

    The first page has a grid of entries by task families.

    Each task has its rule, sample contexts, published facts and board; each claim its verdicts; each entry its seeds, training
    curves, settings and origins of runs. Claims with a verdict from the runs are included, the others are counted.
    """
    from lgbench.claims.claim import default_folder, read_claims
    from lgbench.claims.missing import as_in_results
    from lgbench.claims.verdicts import decide
    from lgbench.experiment.components import families_of
    from lgbench.extensions.describe import task_documents
    from lgbench.reports import site as pages

    claims = read_claims(claims_folder or default_folder())
    runs, registry = options.opened(results, beside), installed(plugins)
    claims = [as_in_results(claim, registry) for claim in claims]
    tasks = task_documents(registry, runs.task_names, complain)
    protocol, families = None if protocol == ALL_PROTOCOLS else protocol, families_of(registry)
    judged = [(claim, decide(claim, runs, protocol, families)) for claim in claims]
    made = pages.pages(runs, protocol, baseline, judged, tasks, docs)
    path = pages.write(made, out)
    echo(f"{path} ({sum(map(len, made.values())) / 1e6:.1f} MB with its data)")
