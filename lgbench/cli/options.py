"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from lgbench.cli.option_types import Change, Folder, NameInResults, Names, Seeds
from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import UsageError
from lgbench.options import Kind, RunOptions
from lgbench.results.entries import BASELINE_ENTRY

Command = TypeVar("Command", bound=Callable[..., Any])


def _click_option(own: Field[Any]) -> Callable[[Command], Command]:
    """Click's option of one field of the options of `lgbench run`."""
    about, kind = own.metadata, own.metadata["kind"]
    named = about.get("flag", f"--{own.name.replace('_', '-')}")
    settings: dict[str, Any] = {"help": about["help"], "multiple": kind in ("names", "changes", "files")}
    if kind == "flag":
        return click.option(named, own.name, is_flag=True, help=about["help"])
    if kind == "switch":
        return click.option(f"{named}/--no-{named[2:]}", own.name, default=None, help=about["help"])
    if own.default is MISSING and own.default_factory is MISSING:
        settings["required"] = True
    elif not settings["multiple"]:
        shown = about.get("shown", own.default)
        settings |= {"default": shown, "show_default": shown is not None}
    return click.option(named, own.name, type=_TYPES[kind](about.get("of", ())), **settings)


_TYPES: dict[Kind, Callable[[Sequence[str]], Any]] = {
    "name": lambda kinds: Names(*kinds),
    "names": lambda kinds: Names(*kinds),
    "seeds": lambda _: Seeds(),
    "changes": lambda _: Change(),
    "choice": click.Choice,
    "number": lambda _: click.INT,
    "seconds": lambda _: click.FLOAT,
    "text": lambda _: click.STRING,
    "files": lambda _: click.Path(path_type=Path),
    "folder": lambda _: Folder(),
}

_RUN = {own.name: _click_option(own) for own in fields(RunOptions)}

plugin_option, device_option, results_option = _RUN["plugins"], _RUN["device"], _RUN["results"]


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options of `lgbench run`; the command gets a :class:`RunOptions`, with no name checked yet."""

    @wraps(command)
    def collected(**given: Any) -> Any:
        for own in fields(RunOptions):
            if own.metadata["kind"] == "names":
                given[own.name] = split(given[own.name])
            if own.metadata["kind"] == "changes":
                given[own.name] = joined(given[own.name])
        given["average"] = _averagers(given["average"])
        return command(RunOptions(**{name: given.pop(name) for name in _RUN}), **given)

    for option in reversed(_RUN.values()):
        collected = option(collected)
    return collected


def _averagers(names: Sequence[str]) -> list[str] | None:
    """Averagers that `--average` names; None, for the default, where it is not given."""
    others = [name for name in names if name != "none"]
    if others and "none" in names:
        raise UsageError(f"--average names none and {', '.join(others)}: use none alone, or leave it out")
    return others if names else None


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
