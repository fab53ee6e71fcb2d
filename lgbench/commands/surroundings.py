"""What several commands need: the results folder, what is installed, a console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lgbench.contracts import METRICS
from lgbench.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from lgbench.ranking.boards import Board
    from lgbench.ranking.leaderboard import Results
    from lgbench.registry import Registry

results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder where runs live.",
)

plugin_option = click.option(
    "--plugin",
    "plugins",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A plugin that is a file of its own, as in --plugin ./my_norm.py.",
)

Command = TypeVar("Command", bound=Callable[..., Any])


def board_options(purpose: str) -> Callable[[Command], Command]:
    """--task, --metric and --protocol, by which boards are chosen; `purpose` is what the metric is for."""

    def add(command: Command) -> Command:
        options = (
            click.option("--task", help="Family or task.  [default: every family]"),
            click.option("--metric", type=click.Choice(METRICS), default="tvd", show_default=True, help=purpose),
            click.option("--protocol", help="Protocol, or its full label.  [default: every one found]"),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return add


def installed(plugins: Sequence[Path] = ()) -> Registry:
    """Everything installed and these files; what is wrong with a plugin is told, and nothing else is hurt by it."""
    from lgbench.registry import Registry

    registry = Registry.load(files=plugins)
    for problem in [*registry.problems(), *registry.notes()]:
        click.echo(f"lgbench: warning: {problem}", err=True)
    return registry


def opened(folder: Path) -> Results:
    """The runs of a folder; files that are no runs are told."""
    from lgbench.ranking.leaderboard import Results

    results = Results(folder)
    for sentence in results.left_out:
        click.echo(f"lgbench: warning: left out: {sentence}", err=True)
    return results


def boards(folder: Path, metric: str, task: str | None, protocol: str | None) -> list[Board]:
    """Those that are asked for by :func:`board_options`. Raises UsageError where there is none."""
    found = opened(folder).boards(metric, task, protocol)
    if not found:
        raise UsageError(f"no {metric} in {folder} for this task and protocol")
    return found


def console(stderr: bool = False) -> Console:
    """Standard output, or standard error, as rich knows it."""
    from rich.console import Console

    found = Console(stderr=stderr)
    # A pipe has no width to fit into: nothing is cut there.
    return found if found.is_terminal else Console(stderr=stderr, width=200)
