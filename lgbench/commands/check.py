"""`lgbench check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.commands.surroundings import plugin_option
from lgbench.errors import LgbenchError, unknown

if TYPE_CHECKING:
    from lgbench.conformance.check import Check
    from lgbench.registry import Registry


@click.command()
@click.argument("names", metavar="[PLUGIN]...", nargs=-1)
@plugin_option
@click.option("--verbose", "-v", is_flag=True, help="Show the promises that are kept, too.")
def check(names: Sequence[str], plugins: Sequence[Path], verbose: bool) -> None:
    """Check that plugins keep to the contracts, and say what is wrong in sentences.

    PLUGIN is the name of a plugin, of the package that it came in, or of one thing that it provides. Without any, the files
    of --plugin are checked, or else everything that is installed.
    """
    from lgbench.conformance.check import Broken
    from lgbench.registry import Registry

    registry = Registry.load(files=plugins)
    wanted = _chosen(names, bool(plugins), registry)
    broken = noted = 0
    thing = ""
    for each in wanted:
        if each.thing != thing:
            thing = each.thing
            click.echo(thing)
        try:
            note = each()
        except Broken as error:
            broken += 1
            click.echo(f"  BROKEN {each.promise}\n    {str(error).removeprefix(f'{thing}: ')}")
        else:
            noted += note is not None
            if note:
                click.echo(f"  note   {each.promise}\n    {note}")
            elif verbose:
                click.echo(f"  kept   {each.promise}")
    notes = f", {noted} with a note" if noted else ""
    if broken:
        raise LgbenchError(f"{broken} of {len(wanted)} promises are broken{notes}")
    click.echo(f"all {len(wanted)} promises are kept{notes}")


def _chosen(names: Sequence[str], files_alone: bool, registry: Registry) -> list[Check]:
    from lgbench.conformance.collect import checks_of, checks_of_plugin
    from lgbench.requirements import canonical

    every = registry.plugins
    if not names:
        own = [plugin for plugin in every if plugin.distribution.stamp] if files_alone else every
        return [each for plugin in own for each in checks_of_plugin(plugin, registry)]
    found: list[Check] = []
    for name in names:
        own = [plugin for plugin in every if canonical(name) in map(canonical, (plugin.name, plugin.distribution.name))]
        things = [thing for catalog in registry.catalogs().values() if (thing := catalog.get(name)) is not None]
        if not own and not things:
            plugins = {called for plugin in every for called in (plugin.name, plugin.distribution.name)}
            raise unknown("plugin", name, plugins | {each for c in registry.catalogs().values() for each in c.names()})
        found += [each for plugin in own for each in checks_of_plugin(plugin, registry)]
        found += [] if own else [each for thing in things for each in checks_of(thing, registry)]
    return found
