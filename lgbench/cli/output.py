"""Output of a command, and opening of plugins and results. Standard output has the command's text and data alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from lgbench.errors import UsageError
from lgbench.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from lgbench.extensions.registry import Registry
    from lgbench.results.boards import Board
    from lgbench.results.leaderboard import Inside, Results


class Output:
    """Standard output of one command."""

    def __init__(self, lasting: bool = False) -> None:
        """`lasting`: the process ends with the command, so that :meth:`give_back` has no effect."""
        self._lasting = lasting
        self._own: TextIO | None = None
        self._given: TextIO | None = None
        self._kept: int | None = None

    @property
    def stream(self) -> TextIO:
        return self._own or sys.stdout

    def keep(self) -> None:
        """Keep standard output for the command. All other prints, also by other threads, go to standard error.

        A command calls this method before importing plugins.
        """
        if self._own or sys.stdout is None:
            return
        given = sys.stdout
        direct = _writes_to_descriptor_1(given)
        self._given, self._own, self._kept = given, given, self._take_descriptor()
        sys.stdout = sys.stderr if sys.stderr is not None else open(os.devnull, "w")  # noqa: SIM115
        if direct and self._kept is not None:
            self._own = open(self._kept, "w", encoding=given.encoding, errors=given.errors, closefd=False)  # noqa: SIM115

    def give_back(self) -> None:
        """Give standard output back to all code, unless the process ends with the command."""
        if self._given is None or self._own is None or self._lasting:
            return
        with suppress(OSError):  # the reader has gone
            self._own.flush()
        sys.stdout, self._own = self._given, None
        if self._kept is not None:
            os.dup2(self._kept, 1)
            os.close(self._kept)

    @staticmethod
    def _take_descriptor() -> int | None:
        """Redirect the descriptor of standard output to standard error. Returns a new descriptor of the old target."""
        sys.stdout.flush()
        with suppress(OSError):  # it is closed
            kept = os.dup(1)
            try:
                os.dup2(2, 1)
            except OSError:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.close(nowhere)
            return kept
        return None


def _writes_to_descriptor_1(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 1
    except (OSError, ValueError):  # it is in memory
        return False


def keep_output() -> None:
    """See :meth:`Output.keep`."""
    context = click.get_current_context()
    output = context.ensure_object(Output)
    output.keep()
    context.find_root().call_on_close(output.give_back)


def echo(text: object = "") -> None:
    """Print lines of text, with control characters in strangers' names and notes made harmless."""
    click.echo(printable(str(text), lines=True), file=_stream())


def echo_data(text: str) -> None:
    """Print data such as CSV or JSON, unchanged unless on a terminal."""
    stream = _stream()
    click.echo(printable(text, lines=True) if stream.isatty() else text, file=stream, nl=False)


def complain(text: object) -> None:
    """Print lines on standard error."""
    click.echo(printable(f"lgbench: {text}", lines=True), err=True)


def console(stderr: bool = False) -> Console:
    """Standard output or standard error as a rich console. A pipe is 200 columns wide and wraps nothing."""
    from rich.console import Console

    found = Console(stderr=True) if stderr else Console(file=_stream(), width=_columns(_stream()))
    return found if found.is_terminal else Console(file=found.file, width=200, soft_wrap=True)


def _columns(stream: TextIO) -> int | None:
    """Width of a stream's terminal; None to let rich find the width."""
    with suppress(OSError, ValueError):
        if not os.environ.get("COLUMNS") and stream.isatty():
            return os.get_terminal_size(stream.fileno()).columns or None
    return None


def _stream() -> TextIO:
    context = click.get_current_context(silent=True)
    return (context.ensure_object(Output) if context else Output()).stream


def installed(plugins: Sequence[Path] = (), only: Collection[str] | None = None) -> Registry:
    """Registry of installed plugins and plugin files; `only` as in :meth:`Registry.load`. Warns of each broken plugin."""
    from lgbench.extensions.registry import Registry

    keep_output()
    registry = Registry.load(files=plugins, only=only)
    for problem in [*registry.problems(), *registry.notes()]:
        complain(f"warning: {problem}")
    return registry


def opened(folder: Path) -> Results:
    """Results of a folder. Warns of each unusable file."""
    from lgbench.results.leaderboard import Results

    results = Results(folder)
    warn(results.left_out)
    return results


def warn(sentences: Iterable[str]) -> None:
    """Warn on standard error of files left out."""
    for sentence in sentences:
        complain(f"warning: left out: {printable(sentence)}")


def boards_of(
    results: Results,
    metric: str,
    task: str | None,
    protocol: str | None,
    baseline: str | None = None,
    inside: Inside | None = None,
) -> list[Board]:
    """Boards chosen by the options of :func:`lgbench.cli.options.board_options`; for probes, tables of internals.

    Raises UsageError if there are none.
    """
    found = results.boards(metric, task, protocol, baseline=baseline, inside=inside)
    if not found:
        place = printable(str(results.folder))
        raise UsageError(f"no {metric} in {place} for this task and protocol; leave one out to see all boards")
    return found
