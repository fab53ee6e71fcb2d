"""What plugins provide of one kind, by name: who gave it, and what becomes of a name that two give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from lgbench.contracts import Architecture, Attention, Averager, NormScheme, Position, Task
from lgbench.declared import require_declared
from lgbench.errors import PluginError, UsageError, unknown
from lgbench.loading import Distribution

Item = TypeVar("Item", Task, Architecture, NormScheme, Attention, Position, Averager)


class Catalog(Generic[Item]):
    """All objects of one kind, by name, each with the distribution that gave it."""

    def __init__(self, kind: str, contract: Any, sibling: Callable[[Item, str], Item | None] = lambda item, name: None) -> None:
        self.kind = kind
        self.contract = contract
        self._sibling: Callable[[Item, str], Item | None] = sibling
        self._items: dict[str, list[tuple[Item, Distribution]]] = {}

    def add(self, item: Item, distribution: Distribution) -> None:
        self._items.setdefault(item.name, []).append((item, distribution))

    def __iter__(self) -> Iterator[Item]:
        return (self[name] for name in self.names())

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __getitem__(self, name: str) -> Item:
        """The object of that name. Raises UsageError if nobody provides it, PluginError if two do."""
        item = self.get(name)
        if item is None:
            raise unknown(self.kind, name, self.names())
        return item

    def get(self, name: str) -> Item | None:
        """As indexing, but None if nobody provides it."""
        found = self._find(name)
        return found[0] if found else None

    def label(self, name: str) -> str:
        """The name that results have: with the beginning of the content, my-norm~1a2b3c4d, where a file provides it.

        So that what was made with one version of a file is never taken for another. Labels are found like names, and tell
        what a file provides from what else has the same name.
        """
        origin = self.origin(name)
        plain = name.partition("~")[0]
        return f"{plain}~{origin.stamp}" if origin and origin.stamp else plain

    def origin(self, name: str) -> Distribution | None:
        """The distribution that provides `name`, if any does."""
        found = self._find(name)
        return found[1] if found else None

    def names(self) -> list[str]:
        """Every usable name, sorted; clashing names are left out."""
        return sorted(name for name, found in self._items.items() if len(found) == 1)

    def clashes(self) -> list[str]:
        """One sentence for each name that more than one plugin provides."""
        return [self._clash(name) for name, found in sorted(self._items.items()) if len(found) > 1]

    def _clash(self, name: str) -> str:
        origins = [distribution for _, distribution in self._items[name]]
        owners = " and ".join(f"{origin.name} {origin.version}" for origin in origins)
        labels = " or ".join(f"{name}~{origin.stamp}" for origin in origins if origin.stamp)
        return (
            f"{self.kind} {name!r} is provided by {owners}, so it cannot be used: "
            "uninstall one, or name the plugins to load in LGBENCH_PLUGINS"
        ) + (f", or say {labels} where a file's is meant" if labels else "")

    def _find(self, name: str) -> tuple[Item, Distribution] | None:
        plain, _, stamp = name.partition("~")
        found = self._items.get(plain, [])
        if stamp:
            found = [(item, origin) for item, origin in found if origin.stamp == stamp]
        if len(found) > 1:
            raise PluginError(self._clash(plain))
        return found[0] if found else self._unlisted(plain, stamp)

    def _unlisted(self, name: str, stamp: str) -> tuple[Item, Distribution] | None:
        """What an item offers beyond what its plugin lists (dyck-K-M)."""
        reasons: list[ValueError] = []
        for item, distribution in (found[0] for found in self._items.values()):
            if stamp not in ("", distribution.stamp):
                continue
            try:
                sibling = self._sibling(item, name)
            except ValueError as error:
                reasons.append(error)
            except Exception:  # a stranger's code, asked for a name that need not be its own; `lgbench check` tells
                continue
            else:
                if sibling is not None:
                    require_declared(sibling, self.contract)
                    return sibling, distribution
        if reasons:
            raise UsageError(f"no {self.kind} {name!r}: {reasons[0]}") from reasons[0]
        return None
