"""Output of a command, and opening of plugins. Standard output has the command's text and data alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from lgbench.terminal import printable, wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from lgbench.extensions.registry import Registry


def keep_output() -> None:
    """Keep standard output for the text of the command. Prints of plugins go to standard error until its end.

    A command calls this function before importing plugins.
    """
    root = click.get_current_context().find_root()
    if root.obj is None:
        root.obj = sys.stdout
        root.with_resource(redirect_stdout(sys.stderr))


def echo(text: object = "", hang: int = 0) -> None:
    """Print lines of text, with control characters in strangers' names and notes made harmless.

    A terminal gets lines within its width; further lines of a line are indented by `hang`. Letters that its encoding lacks are
    question marks.
    """
    stream = _stream()
    encoding = stream.encoding or "utf-8"
    lines = fitted(printable(str(text), lines=True), stream, hang)
    click.echo(lines.encode(encoding, "replace").decode(encoding), file=stream)


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
    import rich.console

    class Console(rich.console.Console):
        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError, for the command to end well; rich exits with 1

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
    kept: TextIO | None = context.find_root().obj if context else None
    return kept or sys.stdout


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
