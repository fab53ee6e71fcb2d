"""Commands from plugins: names from the metadata of installed packages, commands from the hook `lgbench_commands`.

Help and completion need only names, and import no plugin. The use of a command imports a single module.
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
"""Entry-point group. Each entry is the name of a command, with the module whose hook returns the command."""


def named() -> dict[str, list[EntryPoint]]:
    """Entry points of all commands by name, in alphabetical order. Several entries per name are a clash."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for each in sorted(entry_points(group=GROUP), key=lambda each: (each.name, owner(each))):
        found[each.name].append(each)
    return found


def owner(entry_point: EntryPoint) -> str:
    """Name of the package behind a command."""
    return entry_point.dist.name if entry_point.dist else entry_point.module


def clash(name: str, own: Sequence[EntryPoint], built_in: Collection[str]) -> str | None:
    """Sentence about a command from several packages, lgbench included; None for a command from a single package."""
    owners = ["lgbench"] * (name in built_in) + [owner(each) for each in own]
    used = "that of lgbench is used" if name in built_in else "none is used"
    who = " and ".join(owners)
    return None if len(owners) == 1 else f"the command {name!r} comes from {who}, and {used}: uninstall one of the packages"


def command(name: str) -> click.Command | None:
    """Command from a plugin, whose module is imported; None for an unknown name. Raises PluginError for an unusable command."""
    own = named().get(name, [])
    if why := clash(name, own, ()) if own else None:
        raise PluginError(why)
    return loaded(own[0]) if own else None


def loaded(entry_point: EntryPoint) -> click.Command:
    """Command behind an entry point. Raises PluginError for a broken module or hook."""
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
    """Commands from the hook of one plugin."""
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
