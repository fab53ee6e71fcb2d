"""Commands from plugins: names from the metadata of installed packages, commands from the hook `lgbench_commands`.

Help and completion need only names, and import no plugin. The use of a command imports a single module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from lgbench.errors import PluginError, message_of
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


def about(entry_point: EntryPoint) -> str:
    """Sentence about a command from the metadata of its package: no module is imported.

    Of a summary with several parts, "Push ...; pull ...", the part that begins with the name of the command.
    """
    # .json, because metadata[...] warns of a field that is missing.
    known = entry_point.dist.metadata.json if entry_point.dist else {}
    summary = str(known.get("summary", "Command"))
    own = (part for part in summary.split("; ") if part.lower().startswith(entry_point.name))
    said = next(own, summary)
    return f"{said[:1].upper()}{said[1:]} ({owner(entry_point)})."


def clash(name: str, own: Sequence[EntryPoint], built_in: Collection[str]) -> str | None:
    """Sentence about a command from several packages, lgbench included; None for a command from a single package."""
    owners = ["lgbench"] * (name in built_in) + [owner(each) for each in own]
    used = "that of lgbench is used" if name in built_in else "none is used"
    who = " and ".join(owners)
    return None if len(owners) == 1 else f"the command {name!r} comes from {who}, and {used}: uninstall one of the packages"


def command(name: str, built_in: Collection[str] = ()) -> click.Command | None:
    """Command from a plugin, whose module is imported; None for an unknown name. Raises PluginError for an unusable command.

    `built_in` are the commands of lgbench, which keep their names.
    """
    own = named().get(name, [])
    if why := clash(name, own, built_in) if own else None:
        raise PluginError(why)
    return loaded(own[0]) if own else None


def loaded(entry_point: EntryPoint) -> click.Command:
    """Command behind an entry point. Raises PluginError for a broken module or hook."""
    import click

    # Not at the top: names alone need none of it.
    from lgbench.extensions.loading import check_contract, installed_source, manager_of, provided, watched

    source = installed_source(entry_point)
    try:
        with watched([]):
            check_contract(source)
            found = provided(manager_of(source.load()), "lgbench_commands", click.Command)
        for item in found:
            if item.name == entry_point.name:
                return item
        names = ", ".join(repr(item.name) for item in found) or "nothing"
        raise PluginError(f"lgbench_commands returns {names}, expected a command {entry_point.name!r}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an import may raise anything
        why = message_of(error)
        command = f"the command {entry_point.name!r} of {owner(entry_point)}"
        raise PluginError(f"{command} cannot be used: {sentence(why)}") from error
