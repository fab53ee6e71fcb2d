"""From the names that a user writes to tasks and entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lgbench.contracts import BASELINE, PART_KINDS
from lgbench.errors import UsageError, unknown
from lgbench.registry import Registry


def find_tasks(names: Iterable[str], registry: Registry) -> list[str]:
    """The names that results have of tasks by name; a family's name means all its tasks, `all` every task."""
    found: dict[str, None] = {}
    for name in names:
        members = [task.name for task in registry.tasks if name in ("all", task.family)]
        if not members:
            if registry.tasks.get(name) is None:
                known = {*registry.tasks.names(), *(task.family for task in registry.tasks)}
                raise unknown("task", name, known | {"all"} if known else known)
            members = [name]
        found |= dict.fromkeys(map(registry.tasks.label, members))
    return list(found)


@dataclass(frozen=True)
class Entry:
    """An architecture and its parts, by the names that results have. Fields as in :class:`Experiment`."""

    architecture: str
    norm: str | None
    attention: str | None
    position: str | None


def find_entries(names: Iterable[str], registry: Registry) -> list[Entry]:
    """Entries by name: an architecture and parts of it, in any order, joined by plus signs.

    Without an architecture the baseline is meant; a part that is not named is the architecture's own. Raises UsageError for
    names that nobody provides, two parts of one kind, and parts that the architecture does not take.
    """
    return list(dict.fromkeys(_entry(name, registry) for name in names))


def _entry(name: str, registry: Registry) -> Entry:
    first, *others = name.split("+")
    if registry.architectures.get(first) is None:
        _kind_of(first, registry, "architecture")  # a part, or nothing that anybody provides
        first, others = BASELINE, [first, *others]
    architecture = registry.architectures[first]
    catalogs, parts = registry.catalogs(), dict(architecture.defaults)
    named: dict[str, str] = {}
    for part in others:
        kind = _kind_of(part, registry)
        if kind in named:
            raise UsageError(f"{name!r} names two {kind}s, {named[kind]} and {part}; a model has one")
        if kind not in parts:
            takes = ", ".join(kind for kind in PART_KINDS if kind in parts) or "nothing"
            raise UsageError(f"{first} takes no {kind}, so {name!r} cannot be; parts that it takes: {takes}")
        named[kind] = parts[kind] = part
    labels = {kind: catalogs[kind].label(part) for kind, part in parts.items()}
    own = {kind: None if part == architecture.defaults[kind] else part for kind, part in labels.items()}
    label = registry.architectures.label(first)
    return Entry(label, labels.get("norm"), own.get("attention"), own.get("position"))


def _kind_of(part: str, registry: Registry, *others: str) -> str:
    """Which kind of part has that name. Raises UsageError where none has, or several; it could have named `others` as well."""
    catalogs = registry.catalogs()
    kinds = [kind for kind in PART_KINDS if catalogs[kind].get(part) is not None]
    if len(kinds) > 1:
        raise UsageError(f"{part!r} is the name of a {' and of a '.join(kinds)}, so what it means here cannot be told")
    if not kinds:
        expected = (*others, *PART_KINDS)
        known = [name for kind in expected for name in catalogs[kind].names()]
        raise unknown(f"{', '.join(expected[:-1])} or {expected[-1]}", part, known)
    return kinds[0]
