"""`lgbench check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lgbench.cli.options import plugin_option
from lgbench.cli.output import echo, keep_output
from lgbench.errors import LgbenchError, unknown

if TYPE_CHECKING:
    from lgbench.conformance.check import Check
    from lgbench.extensions.registry import Registry


@click.command()
@click.argument("names", metavar="[PLUGIN]...", nargs=-1)
@plugin_option
@click.option("--verbose", "-v", is_flag=True, help="Show the checks that passed, too.")
def check(names: Sequence[str], plugins: Sequence[Path], verbose: bool) -> None:
    """Check whether plugins keep to the contracts.

    PLUGIN is the name of a plugin, of its package, or of one thing that it provides. Without a name, the files of --plugin are
    checked, or everything that is installed. The exit code is 1 if a check failed.
    """
    from lgbench.conformance.check import CheckFailed
    from lgbench.extensions.registry import Registry

    keep_output()
    registry = Registry.load(files=plugins)
    chosen = _chosen(names, bool(plugins), registry)
    failed = noted = 0
    thing = ""
    for each in chosen:
        if each.thing != thing:
            thing = each.thing
            echo(thing)
        try:
            note = each()
        except CheckFailed as error:
            failed += 1
            echo(f"  FAILED {each.name}\n    {str(error).removeprefix(f'{thing}: ')}")
        else:
            noted += note is not None
            if note:
                echo(f"  note   {each.name}\n    {note}")
            elif verbose:
                echo(f"  passed {each.name}")
    notes = f", {noted} with a note" if noted else ""
    if failed:
        raise LgbenchError(f"{failed} of {len(chosen)} checks failed{notes}")
    echo(f"all {len(chosen)} checks passed{notes}")


def _chosen(names: Sequence[str], files_alone: bool, registry: Registry) -> list[Check]:
    from packaging.utils import canonicalize_name

    from lgbench.conformance.collect import checks_of, checks_of_plugin

    every = registry.plugins
    if not names:
        own = [plugin for plugin in every if plugin.distribution.stamp] if files_alone else every
        return [each for plugin in own for each in checks_of_plugin(plugin, registry)]
    found: list[Check] = []
    for name in names:
        spelled = canonicalize_name(name)
        own = [p for p in every if spelled in (canonicalize_name(p.name), canonicalize_name(p.distribution.name))]
        things = [thing for catalog in registry.catalogs().values() if (thing := catalog.get(name)) is not None]
        if not own and not things:
            plugins = {called for plugin in every for called in (plugin.name, plugin.distribution.name)}
            raise unknown("plugin", name, plugins | {each for c in registry.catalogs().values() for each in c.names()})
        found += [each for plugin in own for each in checks_of_plugin(plugin, registry)]
        found += [] if own else [each for thing in things for each in checks_of(thing, registry)]
    return found
