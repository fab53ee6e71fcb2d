"""Commands that read results: `lgbench leaderboard`, `compare` and `sql`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.commands.surroundings import board_options, boards, console, opened, results_option


@click.command()
@board_options("What to order by.")
@click.option("--format", "form", type=click.Choice(["table", "markdown", "csv", "json"]), default="table", show_default=True)
@results_option
def leaderboard(task: str | None, metric: str, protocol: str | None, form: str, results: Path) -> None:
    """Put the entries in order, in tiers that their seeds can carry.

    Of each: the mean over seeds with its 95 % interval in the training range, beyond it and at each length, the places that
    cannot be ruled out, and how far it holds.
    """
    from lgbench.showing import render

    found = boards(results, metric, task, protocol)
    if form == "table":
        render.table(found, console())
    else:
        click.echo(render.FORMATS[form](found), nl=False)


@click.command()
@click.argument("first")
@click.argument("second")
@board_options("What to compare by.")
@click.option("--format", "form", type=click.Choice(["table", "markdown", "json"]), default="table", show_default=True)
@results_option
def compare(first: str, second: str, task: str | None, metric: str, protocol: str | None, form: str, results: Path) -> None:
    """Compare two entries, paired by seed: who is better, by how much, at which lengths, and how sure that is.

    Entries are named as on the leaderboard, or short: peri-norm, peri-norm@bema.
    """
    from lgbench.ranking.compare import compare as compared
    from lgbench.showing import render

    found = compared(opened(results), first, second, metric, task, protocol)
    if form == "table":
        render.comparisons(found, console())
    else:
        click.echo(render.COMPARISON_FORMATS[form](found), nl=False)


@click.command()
@click.argument("query")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@results_option
def sql(query: str, form: str, results: Path) -> None:
    """Ask anything of the table `results`, in DuckDB's SQL.

    For example: lgbench sql "select entry, avg(value) from results where metric = 'tvd' and length = 64 group by all"
    """
    from lgbench.showing import render

    names, rows = opened(results).ask(query)
    render.answer(names, rows, form, console())
