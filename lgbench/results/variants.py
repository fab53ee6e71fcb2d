"""Names for the runs of one entry that several versions of a plugin made, so that their numbers never meet in a mean.

That can happen under one version of a protocol alone, so runs under another do not matter for a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

CORE = "lgbench"
"""It is among the packages of a number only where uncommitted changes of it made the number."""

FILE = "sha256:"
"""The version of a plugin file begins with it. The names of its things in results tell its versions apart already."""

Plugins = tuple[tuple[str, str], ...]
"""Name, and version with source, of each package that decides some numbers; as in the column `plugins`, sorted."""

Protocol = tuple[str, int]
"""Its name and version."""

Entry = TypeVar("Entry", bound=Hashable)


class Use(NamedTuple, Generic[Entry]):
    """Packages that decide numbers of an entry on a task."""

    entry: Entry
    """Its name, or its name and weights."""
    task: str
    protocol: Protocol
    plugins: Plugins


def suffixes(uses: Iterable[Use[Entry]]) -> dict[tuple[Entry, Protocol, Plugins], str]:
    """For each entry with its packages, what its name needs so that it differs from those with other packages.

    That is nothing where an entry has one version of each package, as nearly always. Numbers on one task have the same suffix
    only if they have the same packages, and numbers on several tasks only if no package has several versions.

    >>> one, two = (("lgbench-positions", "0.1.0 1a2b3c4d5e6f7a8b"),), (("lgbench-positions", "0.2.0 9a8b7c6d5e4f3a2b"),)
    >>> short, long = ("short", 1), ("long", 1)
    >>> uses = [Use("rope", "dyck-1-2", short, one), Use("rope", "dyck-1-2", short, two), Use("rope", "dyck-1-2", long, two)]
    >>> found = suffixes(uses)
    >>> found["rope", short, two], found["rope", long, two]
    (' (lgbench-positions 0.2.0)', '')
    """
    by_entry: dict[tuple[Entry, Protocol], dict[Plugins, set[str]]] = defaultdict(lambda: defaultdict(set))
    for entry, task, protocol, plugins in uses:
        by_entry[entry, protocol][plugins].add(task)
    found: dict[tuple[Entry, Protocol, Plugins], str] = {}
    for (entry, protocol), own in by_entry.items():
        several = _several(own)
        found |= {(entry, protocol, plugins): _suffix(dict(plugins), several) for plugins in own}
    return found


def _several(tasks: Mapping[Plugins, set[str]]) -> dict[str, set[str]]:
    """The packages of an entry that tell its numbers apart, each with its versions."""
    versions: dict[str, set[str]] = defaultdict(set)
    by_task: dict[str, list[dict[str, str]]] = defaultdict(list)
    for plugins, own in tasks.items():
        for name, version in plugins:
            if not version.startswith(FILE):
                versions[name].add(version)
        for task in own:
            by_task[task].append(dict(plugins))
    without_changes = any(CORE not in dict(plugins) for plugins in tasks)
    told = {name for name, own in versions.items() if len(own) > 1 or (name == CORE and without_changes)}
    told |= {name for found in by_task.values() for name in versions if len({used.get(name) for used in found}) > 1}
    return {name: versions[name] for name in told}


def _suffix(plugins: Mapping[str, str], several: Mapping[str, set[str]]) -> str:
    named = []
    for name in sorted(several.keys() & plugins.keys()):
        version, _, source = plugins[name].partition(" ")
        same = [other for other in several[name] if other.partition(" ")[0] == version]
        if name == CORE:
            named.append(f"{name} {version} with changes {source}")
        else:
            named.append(f"{name} {version}" + (f" source {source}" if len(same) > 1 else ""))
    return f" ({', '.join(named)})" if named else ""
