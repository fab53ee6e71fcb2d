"""Options of commands that read results, and the opening of results."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.options import RESULTS, Command, Completed
from lgbench.cli.output import warn
from lgbench.contracts import PRIMARY_METRIC
from lgbench.results.entries import BASELINE_ENTRY

if TYPE_CHECKING:
    from lgbench.results.leaderboard import Results


def _results(folder: Path, beside: str | None) -> Results:
    from lgbench.results.leaderboard import Results
    from lgbench.results.published import published

    return Results(folder, published() if beside else None)


def opened(folder: Path, beside: str | None = None) -> Results:
    """Results of a folder, with published runs if `beside` says so. Warns of each unusable file."""
    gc.disable()  # the search for cycles among the labels of all runs takes a tenth of the time of a board
    click.get_current_context().call_on_close(gc.enable)
    results = _results(folder, beside)
    warn(results.left_out)
    return results


class NameInResults(Completed):
    """Name from the runs of the results folder."""

    def __init__(self, names: Callable[[Results], Iterable[str]]) -> None:
        super().__init__(lambda ctx: names(_results(ctx.params.get("results") or RESULTS, ctx.params.get("beside"))))


claims_option = click.option(
    "--claims",
    "claims_folder",
    type=click.Path(path_type=Path),
    help="Folder of claims.  [default: those that come with lgbench]",
)

_task = click.option(
    "--task",
    type=NameInResults(lambda results: results.task_names),
    help="Family or task to show.  [default: every family]",
)
protocol_name = NameInResults(lambda results: (name for use in results.protocols.values() for name in (use.name, str(use))))


def protocol_option(default: str) -> Callable[[Command], Command]:
    """Option --protocol, with a description of its default."""
    return click.option(
        "--protocol",
        type=protocol_name,
        help=f'Protocol to show: a name, a full label such as "standard/3 train.lr=0.001", or all.  [default: {default}]',
    )


baseline_option = click.option(
    "--baseline",
    metavar="ENTRY",
    help=f"Entry that the others are compared with, as on boards or short: peri-norm, lstm.  [default: {BASELINE_ENTRY}]",
)


beside_option = click.option(
    "--with",
    "beside",
    type=click.Choice(["published"]),
    help="Add the published runs. Boards mark your entries, and have those of other protocols below, without a rank.",
)


@dataclass(frozen=True)
class BoardQuery:
    """Choice of boards by the options of :func:`board_options` and --results."""

    task: str | None
    metric: str
    protocol: str | None
    beside: str | None
    results: Path


def board_options(purpose: str) -> Callable[[Command], Command]:
    """Options --task, --metric, --protocol and --with for the choice of boards; `purpose` is the help of the metric."""
    names = NameInResults(lambda results: results.metric_names)
    metric = click.option("--metric", type=names, default=PRIMARY_METRIC, show_default=True, help=purpose)
    protocol = protocol_option("one with runs: the newest standard, or else paper, long, short or quick")
    return lambda command: _task(metric(protocol(beside_option(command))))


def format_option(*others: str) -> Callable[[Command], Command]:
    """Option --format, by default a table; `others` are further formats."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["table", *others]),
        default="table",
        show_default=True,
        help="Format of the output.",
    )
