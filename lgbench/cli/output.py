"""Output of a command, and opening of plugins. Standard output has the command's text and data alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from lgbench.terminal import printable, wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from lgbench.extensions.registry import Registry


class Output:
    """Standard output of one command."""

    def __init__(self, lasting: bool = False) -> None:
        """`lasting`: the process ends with the command, so that :meth:`give_back` has no effect."""
        self.lasting = lasting
        self._own: TextIO | None = None
        self._given = sys.stdout
        self._kept = 1

    @property
    def stream(self) -> TextIO:
        return self._own or sys.stdout

    def keep(self) -> None:
        """Keep standard output for the command. All other prints, also by other threads, go to standard error.

        A command calls this method before importing plugins.
        """
        if self._own or sys.stdout is None:
            return
        self._given = given = sys.stdout
        given.flush()
        self._kept = os.dup(1)  # the descriptor, because compiled libraries print past sys.stdout
        with suppress(OSError):  # standard error is closed
            os.dup2(2, 1)
        sys.stdout = sys.stderr
        direct = _writes_to_descriptor_1(given)
        own = (given.encoding, given.errors)
        # Not closed with the stream: `give_back` needs the descriptor.
        self._own = open(self._kept, "w", encoding=own[0], errors=own[1], closefd=False) if direct else given  # noqa: SIM115

    def give_back(self) -> None:
        """Give standard output back to all code, unless the process ends with the command."""
        if self._own is None or self.lasting:
            return
        with suppress(OSError):  # the reader has gone
            self._own.flush()
        sys.stdout, self._own = self._given, None
        os.dup2(self._kept, 1)
        os.close(self._kept)


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


def echo(text: object = "", hang: int = 0) -> None:
    """Print lines of text, with control characters in strangers' names and notes made harmless.

    A terminal gets lines within its width; further lines of a line are indented by `hang`.
    """
    click.echo(fitted(printable(str(text), lines=True), _stream(), hang), file=_stream())


def echo_data(text: str) -> None:
    """Print data such as CSV or JSON, unchanged unless on a terminal."""
    stream = _stream()
    click.echo(printable(text, lines=True) if stream.isatty() else text, file=stream, nl=False)


def complain(text: object) -> None:
    """Print lines on standard error."""
    click.echo(fitted(printable(f"lgbench: {text}", lines=True), sys.stderr), err=True)


def fitted(text: str, stream: TextIO, hang: int = 0) -> str:
    """Text with lines within the width of the stream, if that is a terminal."""
    width = _columns(stream)
    return wrapped(text, width, hang) if width else text


def console(stderr: bool = False) -> Console:
    """Standard output or standard error as a rich console. A pipe is 200 columns wide and wraps nothing."""
    from rich.console import Console

    found = Console(stderr=True) if stderr else Console(file=_stream(), width=_columns(_stream()))
    return found if found.is_terminal else Console(file=found.file, width=200, soft_wrap=True)


def _columns(stream: TextIO) -> int | None:
    """Width of a stream's terminal; None in a pipe."""
    with suppress(OSError, ValueError):
        if stream.isatty():
            asked = os.environ.get("COLUMNS", "")
            # A terminal of unknown size says 0.
            return int(asked) if asked.isdigit() and int(asked) else os.get_terminal_size(stream.fileno()).columns or None
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


def warn(sentences: Iterable[str]) -> None:
    """Warn on standard error of files left out."""
    for sentence in sentences:
        complain(f"warning: left out: {printable(sentence)}")
