"""`lgbench plugins`: the installed plugins and their errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click

from lgbench.cli.options import json_option, plugin_option
from lgbench.cli.output import console, echo, keep_output
from lgbench.errors import PluginError
from lgbench.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from lgbench.extensions.loading import Distribution
    from lgbench.extensions.registry import Plugin, Registry

MAX_WIDTH = 10_000
"""Columns that a line of a pipe may have."""


@click.command()
@plugin_option
@json_option
def plugins(plugins: Sequence[Path], as_json: bool) -> None:
    """Show the installed plugins, and why one failed to load.

    The table says what each plugin provides, and where it was installed from. The exit code is 1 if a plugin failed, or if two
    plugins provide the same name.
    """
    from lgbench.extensions.registry import Registry

    keep_output()
    registry = Registry.load(files=plugins)
    registry.plugins += _commands()
    if as_json:
        echo(described(registry))
    else:
        table(registry, console())
        for sentence in (*registry.problems(), *registry.notes()):
            echo(sentence)
    if registry.problems():
        sys.exit(1)


def _commands() -> Iterator[Plugin]:
    """Each command of a plugin, as a plugin of its own: a broken one costs the others nothing."""
    from lgbench.extensions import commands
    from lgbench.extensions.loading import installed_source
    from lgbench.extensions.registry import Plugin

    main = click.get_current_context().find_root().command
    built_in = main.commands if isinstance(main, click.Group) else ()
    for name, own in commands.named().items():
        for entry_point in own:
            error = commands.clash(name, own, built_in)
            if not error:
                try:
                    commands.loaded(entry_point)
                except PluginError as raised:
                    error = str(raised)
            provides = {} if error else {"command": [name]}
            yield Plugin(entry_point.module, installed_source(entry_point).distribution, provides, error)


def table(registry: Registry, console: Console) -> None:
    """Print every plugin, its source and what it provides. No name is cut.

    On a terminal that is too narrow for five columns, two columns have everything.
    """
    rows = [_row(plugin) for plugin in registry.plugins]
    failed = [plugin.error is not None for plugin in registry.plugins]
    lines = _lines(("plugin", "distribution", "version", "from", "provides"), rows, failed)
    needed = console.measure(lines, options=console.options.update(max_width=MAX_WIDTH))
    if not console.is_terminal:
        console.width = max(console.width, needed.maximum)
    elif needed.minimum > console.width:
        stacked = [(f"{name}\n{owner} {version}\n{origin}", provides) for name, owner, version, origin, provides in rows]
        lines = _lines(("plugin", "provides"), stacked, failed)
        lines.leading = 1
    console.print(lines)


def described(registry: Registry) -> str:
    """Every plugin and every error, as JSON."""
    import lgbench
    from lgbench.contracts import CONTRACT

    found = [
        {
            "plugin": plugin.name,
            "distribution": plugin.distribution.name,
            "version": plugin.distribution.version,
            "url": plugin.distribution.url,
            "editable": plugin.distribution.editable,
            "provides": plugin.provides,
            "error": plugin.error,
            "notes": plugin.notes,
        }
        for plugin in registry.plugins
    ]
    clashes = [clash for catalog in registry.catalogs().values() for clash in catalog.clashes()]
    contract = ".".join(map(str, CONTRACT))
    return json.dumps({"lgbench": lgbench.__version__, "contract": contract, "plugins": found, "clashes": clashes}, indent=1)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]], failed: Sequence[bool]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        lines.add_column(name, overflow="fold")
    for row, broken in zip(rows, failed, strict=True):
        lines.add_row(*(Text(printable(text, lines=True)) for text in row), style="red" if broken else None)
    return lines


def _row(plugin: Plugin) -> tuple[str, str, str, str, str]:
    origin = plugin.distribution
    version = f"sha256:{origin.stamp}" if origin.stamp else origin.version
    provides = "\n".join(f"{kind}: {', '.join(names)}" for kind, names in plugin.provides.items())
    name, owner, version, place = map(printable, (plugin.name, origin.name, version, _from(origin)))
    return name, owner, version, place, provides or "nothing, see below"


def _from(origin: Distribution) -> str:
    if origin.name == "lgbench":
        return "built in"
    if origin.stamp:
        return f"file {origin.url}"
    if not origin.url:
        return "index"
    parts = urlsplit(origin.url)
    place = url2pathname(parts.path) if parts.scheme == "file" else origin.url
    return place + (" (editable)" if origin.editable else "")
