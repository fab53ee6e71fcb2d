"""Names of entries and tasks on boards: short names that users write, and suffixes for plugin versions. Needs no plugin."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from lgbench.contracts import BASELINE
from lgbench.errors import UsageError, unknown

PREFIX = f"{BASELINE}+"

BASELINE_ENTRY = f"{PREFIX}pre-norm"
"""Default baseline of boards."""

CORE = "lgbench"
"""Distribution of lgbench, among the packages of a number only after a run with uncommitted changes of lgbench."""

FILE = "sha256:"
"""Prefix of the version of a plugin file. Names of tasks and parts of a plugin file contain the version already."""

Plugins = tuple[tuple[str, str], ...]
"""Name, and version with source, of each package with an effect on numbers; as in the column `plugins`, sorted."""

Protocol = tuple[str, int]
"""Name and version."""

Entry = TypeVar("Entry", bound=Hashable)


def find_entry(name: str, known: Iterable[str]) -> str:
    """Known entry by its full name, or by some of its parts: of several such entries, the one whose parts all others have, too.

    Entries with the baseline architecture come first. Raises UsageError for no such entry or several.

    >>> find_entry("peri-norm@bema", ["transformer+peri-norm", "transformer+peri-norm@bema"])
    'transformer+peri-norm@bema'
    >>> find_entry("rope", ["transformer+pre-norm", "transformer+pre-norm+rope"])
    'transformer+pre-norm+rope'
    >>> find_entry("llama", ["llama+ssmax", "llama"]), find_entry("lru", ["lru+pre-norm+rope", "lru+pre-norm"])
    ('llama', 'lru+pre-norm')
    """
    names = sorted(set(known))
    for written in (name, PREFIX + name):
        if written in names:
            return written
    parts, weights = _parts(name)
    found = [full for full in names if _parts(full)[1] == weights and parts <= _parts(full)[0]]
    found = [full for full in found if full.startswith(PREFIX)] or found
    least = [full for full in found if all(_parts(full)[0] <= _parts(other)[0] for other in found)]
    if len(least) == 1:
        return least[0]
    if found:
        raise UsageError(f"{name!r} may be any of {', '.join(found)}: name more of its parts, or one of these in quotes")
    # Suggestions for a short name are short: a misspelt short name is near no full name.
    raise unknown("entry", name, names if "+" in name else {full.removeprefix(PREFIX) for full in names})


def find_task(name: str, known: Iterable[str]) -> str:
    """Known task or family by its full name, or the only task of a plugin file by its short name.

    Raises UsageError for no task or several.

    >>> find_task("copying", ["copying~d798fd1f", "dyck"])
    'copying~d798fd1f'
    """
    names = sorted(set(known))
    if name in names:
        return name
    found = [full for full in names if without_hashes(full) == name]
    if len(found) > 1:
        raise UsageError(f"{name!r} may be any of {', '.join(found)}: name one of them")
    if found:
        return found[0]
    raise unknown("task", name, names)


def without_hashes(name: str) -> str:
    """Name of a task or an entry without the hashes of plugin files.

    >>> without_hashes("copying~d798fd1f"), without_hashes("transformer+mine~d798fd1f@ema")
    ('copying', 'transformer+mine@ema')
    """
    return re.sub(r"~[0-9a-f]+", "", name)


def _parts(entry: str) -> tuple[set[str], str]:
    """Parts of an entry, and its weights. A part from a plugin file appears under full and short name.

    Versions of packages in brackets are one part, with any characters.
    """
    name, _, versions = entry.partition(" (")
    model, _, weights = name.partition("@")
    versions, _, later = versions.partition(")@")
    parts = set(model.split("+"))
    own = {versions.removesuffix(")")} if versions else set()
    return own | parts | set(map(without_hashes, parts)), weights or later


def short(names: Iterable[str]) -> list[str]:
    """Names without the prefix of the baseline architecture, if all names have the prefix.

    >>> short(["transformer+pre-norm", "transformer+peri-norm@ema"]), short(["transformer+pre-norm", "set-attention"])
    (['pre-norm', 'peri-norm@ema'], ['transformer+pre-norm', 'set-attention'])
    """
    names = list(names)
    common = PREFIX if all(name.startswith(PREFIX) for name in names) else ""
    return [name.removeprefix(common) for name in names]


class Use(NamedTuple, Generic[Entry]):
    """Packages with an effect on the numbers of an entry on a task."""

    entry: Entry
    """Name, or name and weights."""
    task: str
    protocol: Protocol
    plugins: Plugins


def suffixes(uses: Iterable[Use[Entry]]) -> dict[tuple[Entry, Protocol, Plugins], str]:
    """Suffix that tells apart runs of one entry made with different plugin versions, under one version of a protocol.

    Empty for an entry with one version of each package. Equal suffixes on one task mean equal packages. Equal suffixes on
    several tasks mean one version of each package: different versions are never averaged.

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
    """Versions of the packages with several versions among the numbers of an entry."""
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
