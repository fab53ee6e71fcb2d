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

if TYPE_CHECKING:
    from lgbench.extensions.loading import Distribution
    from lgbench.extensions.registry import Plugin, Registry
    from lgbench.reports.tables import Table


@click.command()
@plugin_option
@json_option
def plugins(plugins: Sequence[Path], as_json: bool) -> None:
    """Show the installed plugins, and why one failed to load.

    The table says what each plugin provides, and where it was installed from. The exit code is 1 if a plugin failed, or if two
    plugins provide the same name.
    """
    from lgbench.extensions.registry import Registry
    from lgbench.reports.tables import show

    keep_output()
    registry = Registry.load(files=plugins)
    registry.plugins += _commands()
    if as_json:
        echo(described(registry))
    else:
        show(table(registry), console())
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


def table(registry: Registry) -> Table:
    """Every plugin, its source and what it provides. Plugins that failed are red."""
    from lgbench.reports.tables import Column, Styled, Table

    groups = {"plugin": 0, "distribution": 1, "version": 1, "from": 1, "provides": 0}
    columns = [Column(name, text=True, group=group) for name, group in groups.items()]
    rows = [[Styled(text, "red" if plugin.error else "") for text in _row(plugin)] for plugin in registry.plugins]
    return Table("", columns, rows)


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


def _row(plugin: Plugin) -> tuple[str, str, str, str, str]:
    origin = plugin.distribution
    version = f"sha256:{origin.stamp}" if origin.stamp else origin.version
    provides = "\n".join(f"{kind}: {', '.join(names)}" for kind, names in plugin.provides.items())
    return plugin.name, origin.name, version, _from(origin), provides or "nothing, see below"


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
