"""Output of a command, and the plugins and results that it opens. Its own text and data alone are on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
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
        """`lasting` if the process ends with the command. Then nothing else is ever printed on standard output again."""
        self._lasting = lasting
        self._own: TextIO | None = None
        self._given: TextIO | None = None
        self._kept: int | None = None

    @property
    def stream(self) -> TextIO:
        return self._own or sys.stdout

    def keep(self) -> None:
        """Keep standard output for the command. Whatever else is printed, also by other threads, is on standard error.

        Before plugins are imported, a command calls this.
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
        """Let everybody print on standard output again, unless the process ends with the command."""
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
        """Let the descriptor of standard output lead to standard error. Returns another one for what it led to."""
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
    """Print lines for a reader, on whose terminal nothing is moved or coloured by a name or a note of a stranger."""
    click.echo(printable(str(text), lines=True), file=_stream())


def echo_data(text: str) -> None:
    """Print CSV, JSON or the like: exactly this, unless a terminal shows it."""
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
    """The width of the terminal that shows a stream; None for rich to find it, which asks where standard output led before."""
    with suppress(OSError, ValueError):
        if not os.environ.get("COLUMNS") and stream.isatty():
            return os.get_terminal_size(stream.fileno()).columns or None
    return None


def _stream() -> TextIO:
    context = click.get_current_context(silent=True)
    return (context.ensure_object(Output) if context else Output()).stream


def installed(plugins: Sequence[Path] = ()) -> Registry:
    """Everything that is installed, and these files. Warns of each broken plugin."""
    from lgbench.extensions.registry import Registry

    keep_output()
    registry = Registry.load(files=plugins)
    for problem in [*registry.problems(), *registry.notes()]:
        complain(f"warning: {problem}")
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
        complain(f"warning: left out: {printable(sentence)}")


def boards_of(
    results: Results,
    metric: str,
    task: str | None,
    protocol: str | None,
    baseline: str | None = None,
    inside: Inside | None = None,
) -> list[Board]:
    """The boards that the options of :func:`lgbench.cli.options.board_options` choose; of probes, inside of models.

    Raises UsageError if there are none.
    """
    found = results.boards(metric, task, protocol, baseline=baseline, inside=inside)
    if not found:
        place = printable(str(results.folder))
        raise UsageError(f"no {metric} in {place} for this task and protocol; leave one out to see all boards")
    return found
