"""`lgbench leaderboard`."""

from __future__ import annotations

from pathlib import Path

import click

from lgbench.cli.options import baseline_option, board_options, format_option, results_option
from lgbench.cli.output import console, echo_data
from lgbench.cli.setup import boards_of, opened


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
