"""The output of a command: its own text and data alone are on standard output, whatever plugins print, whenever they do."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import click

from lgbench.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console


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
