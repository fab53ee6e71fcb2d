"""Commands of plugins: their names from the metadata of installed packages, the commands from the hook `lgbench_commands`.

Help and completion need names alone, so they import no plugin. Asking for a command imports the one module that has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from lgbench.errors import LgbenchError, PluginError
from lgbench.terminal import sentence

if TYPE_CHECKING:
    import click

GROUP = "lgbench.commands"
"""Entry-point group. Each name is that of a command, each value the module whose hook returns the command."""


def named() -> dict[str, list[EntryPoint]]:
    """Entry points of all commands by name, in alphabetical order. Several under one name are a clash."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for each in sorted(entry_points(group=GROUP), key=lambda each: (each.name, owner(each))):
        found[each.name].append(each)
    return found


def owner(entry_point: EntryPoint) -> str:
    """Name of the package that brings a command."""
    return entry_point.dist.name if entry_point.dist else entry_point.module


def clash(name: str, own: Sequence[EntryPoint], built_in: Collection[str]) -> str | None:
    """Sentence about a command of several packages, of which lgbench may be one; None for a command of one."""
    owners = ["lgbench"] * (name in built_in) + [owner(each) for each in own]
    used = "that of lgbench is used" if name in built_in else "none is used"
    who = " and ".join(owners)
    return None if len(owners) == 1 else f"the command {name!r} comes from {who}, and {used}: uninstall one of the packages"


def command(name: str) -> click.Command | None:
    """Command of a plugin, which is imported; None where no package names it. Raises PluginError where it cannot be used."""
    own = named().get(name, [])
    if why := clash(name, own, ()) if own else None:
        raise PluginError(why)
    return loaded(own[0]) if own else None


def loaded(entry_point: EntryPoint) -> click.Command:
    """Command behind an entry point. Raises PluginError where its module or its hook is broken."""
    # Not at the top: names alone need none of it.
    from lgbench.extensions.loading import check_contract, installed_source, watched

    source = installed_source(entry_point)
    provided: dict[str | None, click.Command] = {}
    try:
        with watched([]):
            check_contract(source)
            provided = {each.name: each for each in _provided(source.load())}
        if entry_point.name not in provided:
            raise PluginError(f"lgbench_commands returns {', '.join(map(repr, provided)) or 'nothing'}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an import may raise anything
        why = str(error) if isinstance(error, LgbenchError) else f"{type(error).__name__}: {error}"
        raise PluginError(
            f"the command {entry_point.name!r} of {owner(entry_point)} cannot be used: {sentence(why)}"
        ) from error
    return provided[entry_point.name]


def _provided(module: object) -> Iterator[click.Command]:
    """Commands that the hook of one plugin returns."""
    import click
    import pluggy

    from lgbench import hookspecs

    manager = pluggy.PluginManager("lgbench")
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    manager.check_pending()
    for items in manager.hook.lgbench_commands():
        for item in items:
            if not isinstance(item, click.Command):
                raise PluginError(f"lgbench_commands returned {item!r}, expected click commands")
            yield item
