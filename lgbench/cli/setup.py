"""What commands open before they begin: installed plugins, a results folder, a console."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.errors import UsageError
from lgbench.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from lgbench.extensions.registry import Registry
    from lgbench.results.boards import Board
    from lgbench.results.leaderboard import Results


def installed(plugins: Sequence[Path] = ()) -> Registry:
    """Everything that is installed, and these files. Warns of each broken plugin."""
    from lgbench.extensions.registry import Registry

    registry = Registry.load(files=plugins)
    for problem in [*registry.problems(), *registry.notes()]:
        click.echo(f"lgbench: warning: {problem}", err=True)
    return registry


def opened(folder: Path) -> Results:
    """The runs of a folder. Warns of each file that is no run file."""
    from lgbench.results.leaderboard import Results

    results = Results(folder)
    warn(results.left_out)
    return results


def warn(sentences: Iterable[str]) -> None:
    """Say what is left out, on standard error."""
    for sentence in sentences:
        click.echo(f"lgbench: warning: left out: {printable(sentence)}", err=True)


def boards(folder: Path, metric: str, task: str | None, protocol: str | None) -> list[Board]:
    """The boards that the options of :func:`lgbench.cli.options.board_options` choose. Raises UsageError if there are none."""
    results = opened(folder)
    found = results.boards(metric, task, protocol)
    warn(results.no_boards)
    if not found:
        raise UsageError(f"no {metric} in {printable(str(folder))} for this task and protocol; leave one out to see all boards")
    return found


def console(stderr: bool = False) -> Console:
    """Standard output or standard error as a rich console. A pipe is 200 columns wide."""
    from rich.console import Console

    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=200)


def write(text: str) -> None:
    """Put a document on standard output: as it is into a pipe or a file, and on a terminal without what that would obey."""
    click.echo(printable(text, lines=True) if sys.stdout.isatty() else text, nl=False)
