"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from lgbench.cli.option_types import RESULTS, FolderOrAddress, NameInResults
from lgbench.contracts import PRIMARY_METRIC
from lgbench.results.entries import BASELINE_ENTRY

Command = TypeVar("Command", bound=Callable[..., Any])


results_option = click.option(
    "--results",
    type=FolderOrAddress(),
    default=RESULTS,
    show_default=True,
    help="Folder of the run files, or an address such as s3://bucket/folder.",
)

plugin_option = click.option(
    "--plugin",
    "plugins",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Load a plugin that is a single Python file, as in --plugin ./my_norm.py. Can be repeated.",
)

device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Device: cpu, cuda, mps, or auto for a CUDA GPU if there is one.",
)

claims_option = click.option(
    "--claims",
    "claims_folder",
    type=click.Path(path_type=Path),
    help="Folder of claims.  [default: those that come with lgbench]",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")

_task = click.option(
    "--task",
    type=NameInResults(lambda results: results.task_names),
    help="Family or task to show.  [default: every family]",
)
protocol_option = click.option(
    "--protocol",
    type=NameInResults(lambda results: (name for use in results.protocols.values() for name in (use.name, str(use)))),
    help='Protocol to show: a name, or a full label such as "standard/3 train.lr=0.001".  [default: all]',
)


baseline_option = click.option(
    "--baseline",
    metavar="ENTRY",
    help=f"Entry that the others are compared with, as on boards or short: peri-norm, lstm.  [default: {BASELINE_ENTRY}]",
)


def metric_option(purpose: str) -> Callable[[Command], Command]:
    """--metric, for any metric that the runs of the results folder have; `purpose` is its help."""
    return click.option(
        "--metric",
        type=NameInResults(lambda results: results.metric_names),
        default=PRIMARY_METRIC,
        show_default=True,
        help=purpose,
    )


def board_options(purpose: str) -> Callable[[Command], Command]:
    """--task, --metric and --protocol, which choose boards; `purpose` is the help of the metric."""
    return lambda command: _task(metric_option(purpose)(protocol_option(command)))


def format_option(*others: str) -> Callable[[Command], Command]:
    """--format, which is a table unless one of the others is named."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["table", *others]),
        default="table",
        show_default=True,
        help="Format of the output.",
    )


def split(values: Sequence[str]) -> list[str]:
    """The names in the values of a repeated option, each of which may have several joined by commas."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def joined(changes: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The values of each key, joined by commas: a repeated option has all of its values.

    >>> joined([("train.lr", "1e-3"), ("train.steps", "500"), ("train.lr", "3e-3")])
    {'train.lr': '1e-3,3e-3', 'train.steps': '500'}
    """
    found: dict[str, str] = {}
    for key, text in changes:
        found[key] = f"{found[key]},{text}" if key in found else text
    return found
