"""The command line as Markdown, from what click knows of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from tables import prose, table

from lgbench.cli.main import main


def commands() -> str:
    """A heading for every command: its help, how it is called, and a table of its options."""
    return "\n".join(_described(main, "lgbench", None, 2))


def _described(command: click.Command, name: str, parent: click.Context | None, level: int) -> Iterator[str]:
    # Wide enough that click breaks no line.
    context = click.Context(command, info_name=command.name if parent else name, parent=parent, terminal_width=10_000)
    if parent:
        yield f"{'#' * level} {name}\n"
        yield f"{prose(inspect.cleandoc(command.help or ''))}\n"
        yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
        options = (each for each in command.get_params(context) if isinstance(each, click.Option) and "--help" not in each.opts)
        records = (option.get_help_record(context) for option in options)
        if rows := [[f"`{names}`", prose(meaning)] for names, meaning in filter(None, records)]:
            yield f"{table(['option', 'meaning'], rows)}\n"
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _described(each, f"{name} {each.name}", context, level if parent is None else level + 1)
