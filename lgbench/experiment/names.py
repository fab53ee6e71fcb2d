"""From the names that a user writes to tasks and entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lgbench.contracts import BASELINE, NO_NORM, PART_KINDS, Architecture, Task
from lgbench.errors import UsageError, unknown
from lgbench.extensions.catalog import Found
from lgbench.extensions.registry import Registry


def find_tasks(names: Iterable[str], registry: Registry) -> list[Found[Task]]:
    """Tasks by name. The name of a family means all its tasks, `all` means every task."""
    found: dict[str, Found[Task]] = {}
    for name in names:
        members = [task.name for task in registry.tasks if name in ("all", task.family)]
        if not members:
            if registry.tasks.get(name) is None:
                known = {*registry.tasks.names(), *(task.family for task in registry.tasks)}
                raise unknown("task", name, known | {"all"} if known else known)
            members = [name]
        found |= {each.label: each for each in map(registry.tasks.found, members)}
    return list(found.values())


@dataclass(frozen=True)
class Entry:
    """An architecture and its parts."""

    architecture: Found[Architecture]
    parts: Mapping[str, Found[Any]]
    """By kind, of the kinds that the architecture takes."""

    @property
    def label(self) -> str:
        """The name on boards: the architecture, its norm, and the other parts that are not the architecture's own.

        An architecture that has no norm of its own, such as a recurrent network, is named without one.
        """
        own = self.architecture.thing.defaults
        named = [
            part.label
            for kind, part in self.parts.items()
            if part.label != own[kind] or (kind == "norm" and part.label != NO_NORM)
        ]
        return "+".join([self.architecture.label, *named])


def find_entries(names: Iterable[str], registry: Registry) -> list[Entry]:
    """Entries by name: an architecture and parts of it, in any order, joined by plus signs.

    Without an architecture the baseline is meant; a part that is not named is the architecture's own. Raises UsageError for
    names that nobody provides, two parts of one kind, and parts that the architecture does not take.
    """
    found = (_entry(name, registry) for name in names)
    return list({entry.label: entry for entry in found}.values())


def _entry(name: str, registry: Registry) -> Entry:
    first, *others = name.split("+")
    if registry.architectures.get(first) is None:
        _kind_of(first, registry, "architecture")  # a part, or a name that nobody provides
        first, others = BASELINE, [first, *others]
    architecture = registry.architectures.found(first)
    parts = dict(architecture.thing.defaults)
    named: dict[str, str] = {}
    for part in others:
        kind = _kind_of(part, registry)
        if kind in named:
            raise UsageError(f"{name!r} names two {kind}s, {named[kind]} and {part}; a model has one")
        if kind not in parts:
            takes = ", ".join(kind for kind in PART_KINDS if kind in parts) or "none"
            raise UsageError(f"{name!r} is impossible: {first} takes no {kind}; parts that it takes: {takes}")
        named[kind] = parts[kind] = part
    catalogs = registry.catalogs()
    return Entry(architecture, {kind: catalogs[kind].found(parts[kind]) for kind in PART_KINDS if kind in parts})


def _kind_of(part: str, registry: Registry, *others: str) -> str:
    """The kind of part that has this name. Raises UsageError where there is none, or several; `others` are kinds to suggest."""
    catalogs = registry.catalogs()
    kinds = [kind for kind in PART_KINDS if catalogs[kind].get(part) is not None]
    if len(kinds) > 1:
        several = " and of ".join(f"an {kind}" if kind == "attention" else f"a {kind}" for kind in kinds)
        raise UsageError(f"{part!r} is the name of {several}; rename one of them or leave its plugin out")
    if not kinds:
        expected = (*others, *PART_KINDS)
        known = [name for kind in expected for name in catalogs[kind].names()]
        raise unknown(f"{', '.join(expected[:-1])} or {expected[-1]}", part, known)
    return kinds[0]
