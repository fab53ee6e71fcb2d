"""Finding plugins: one door for the built-in and the stranger's, and no plugin that can take the command down."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

import pluggy

from lgbench import hookspecs
from lgbench.contracts import Architecture, Averager, NormScheme, Task
from lgbench.errors import PluginError, UsageError, unknown

GROUP = "lgbench"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

Item = TypeVar("Item", Task, Architecture, NormScheme, Averager)


@dataclass(frozen=True)
class Distribution:
    """Where a plugin comes from."""

    name: str
    version: str


@dataclass
class Plugin:
    """One entry point and what became of it."""

    name: str
    distribution: Distribution
    provides: dict[str, list[str]] = field(default_factory=dict)
    error: str | None = None


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
        owners = " and ".join(f"{d.name} {d.version}" for _, d in self._items[name])
        return (
            f"{self.kind} {name!r} is provided by {owners}, so it cannot be used: "
            "uninstall one, or name the plugins to load in LGBENCH_PLUGINS"
        )

    def _find(self, name: str) -> tuple[Item, Distribution] | None:
        found = self._items.get(name)
        if found and len(found) > 1:
            raise PluginError(self._clash(name))
        return found[0] if found else self._unlisted(name)

    def _unlisted(self, name: str) -> tuple[Item, Distribution] | None:
        """What an item offers beyond what its plugin lists (dyck-K-M)."""
        for item, distribution in (found[0] for found in self._items.values()):
            try:
                sibling = self._sibling(item, name)
            except ValueError as error:
                raise UsageError(f"no {self.kind} {name!r}: {error}") from error
            if sibling is not None:
                return sibling, distribution
        return None


class Registry:
    """What is installed. Made by :meth:`load`, or by :meth:`add` from modules at hand; passed on, never global."""

    def __init__(self) -> None:
        self.tasks: Catalog[Task] = Catalog("task", Task, lambda task, name: task.sibling(name))
        self.architectures: Catalog[Architecture] = Catalog("architecture", Architecture)
        self.norms: Catalog[NormScheme] = Catalog("norm", NormScheme)
        self.averagers: Catalog[Averager] = Catalog("averager", Averager)
        self.plugins: list[Plugin] = []
        self._manager = pluggy.PluginManager("lgbench")
        self._manager.add_hookspecs(hookspecs)

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Registry:
        """Every plugin installed under the entry-point group, or those that LGBENCH_PLUGINS names."""
        registry = cls()
        for entry_point in _chosen(entry_points(group=GROUP), environ.get("LGBENCH_PLUGINS")):
            dist = entry_point.dist
            origin = Distribution(dist.name, dist.version) if dist else Distribution("unknown", "unknown")
            try:
                module = entry_point.load()
            except (Exception, SystemExit) as error:  # a stranger's import may raise anything
                registry.plugins.append(Plugin(entry_point.name, origin, error=f"import failed: {_said(error)}"))
            else:
                registry.add(module, entry_point.name, origin)
        return registry

    def add(self, module: ModuleType | object, name: str, distribution: Distribution) -> Plugin:
        """Take in what one plugin provides; what is wrong with it is kept in `Plugin.error`, nothing is raised."""
        plugin = Plugin(name, distribution)
        self.plugins.append(plugin)
        try:
            self._manager.register(module, name=f"{distribution.name}:{name}")
            for catalog, item in self._provided(module):
                catalog.add(item, distribution)
                plugin.provides.setdefault(catalog.kind, []).append(item.name)
            if not plugin.provides:
                raise PluginError("provides nothing: no function in it is marked with @lgbench.hookimpl")
        except (Exception, SystemExit) as error:  # its hooks are a stranger's code as well
            plugin.error = _said(error)
            if self._manager.is_registered(module):
                self._manager.unregister(module)
        return plugin

    def problems(self) -> list[str]:
        """A sentence for each plugin that failed and each name that clashes."""
        failed = [
            f"plugin {p.name} ({p.distribution.name} {p.distribution.version}): {p.error}" for p in self.plugins if p.error
        ]
        return failed + [clash for catalog in self.catalogs() for clash in catalog.clashes()]

    def catalogs(self) -> tuple[Catalog[Task], Catalog[Architecture], Catalog[NormScheme], Catalog[Averager]]:
        return self.tasks, self.architectures, self.norms, self.averagers

    def _provided(self, module: object) -> list[tuple[Catalog[Any], Any]]:
        """Call the hooks of one plugin and check what they return, before any of it is taken in."""
        self._refuse_misspelt(module)
        others = [plugin for plugin in self._manager.get_plugins() if plugin is not module]
        found: list[tuple[Catalog[Any], Any]] = []
        for catalog in self.catalogs():
            hook, contract = f"lgbench_{catalog.kind}s", catalog.contract
            for items in self._manager.subset_hook_caller(hook, others)():
                for item in items:
                    if not isinstance(item, contract):
                        raise PluginError(f"{hook} returned {item!r}, expected objects of lgbench.{contract.__name__}")
                    if not _NAME.fullmatch(item.name):
                        raise PluginError(f"{hook} returned a name {item.name!r}: use lower-case letters, digits and hyphens")
                    found.append((catalog, item))
        return found

    def _refuse_misspelt(self, module: object) -> None:
        known = [name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction) if name.startswith("lgbench_")]
        for caller in self._manager.get_hookcallers(module) or []:
            if not caller.has_spec():
                raise PluginError(str(unknown("hook", caller.name, known)))
        self._manager.check_pending()


def _chosen(found: Iterable[EntryPoint], wanted: str | None) -> list[EntryPoint]:
    available = sorted(found, key=lambda e: (e.name, e.dist.name if e.dist else ""))
    if wanted is None:
        return available
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in {e.name for e in available}:
            raise UsageError(f"LGBENCH_PLUGINS: {unknown('plugin', name, (e.name for e in available))}")
    return [e for e in available if e.name in names]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, PluginError) else str(error)
