"""Finding plugins: one door for the built-in and the stranger's, and no plugin that can take the command down."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from lgbench import hookspecs
from lgbench.catalog import Catalog
from lgbench.contracts import Architecture, Attention, Averager, NormScheme, Position, Task
from lgbench.declared import require_declared
from lgbench.errors import PluginError, UsageError, unknown
from lgbench.loading import Distribution, Source, check_contract, file_source, installed_source, watched

GROUP = "lgbench"
_UNMARKED = "no function in it is marked with @lgbench.hookimpl"


@dataclass
class Plugin:
    """One entry point, or file, and what became of it."""

    name: str
    distribution: Distribution
    provides: dict[str, list[str]] = field(default_factory=dict)
    """Names by kind."""
    error: str | None = None
    """Why nothing of it can be used."""
    notes: list[str] = field(default_factory=list)
    """What is wrong with it and hurts nobody."""
    module: object = field(default=None, repr=False)
    """What has its hooks, None where it could not be imported."""

    @property
    def title(self) -> str:
        return f"plugin {self.name} ({self.distribution.name} {self.distribution.version})"


class Registry:
    """What is installed. Made by :meth:`load`, or by :meth:`add` from modules at hand; passed on, never global."""

    def __init__(self) -> None:
        self.tasks: Catalog[Task] = Catalog("task", Task, lambda task, name: task.sibling(name))
        self.architectures: Catalog[Architecture] = Catalog("architecture", Architecture)
        self.norms: Catalog[NormScheme] = Catalog("norm", NormScheme)
        self.attentions: Catalog[Attention] = Catalog("attention", Attention)
        self.positions: Catalog[Position] = Catalog("position", Position)
        self.averagers: Catalog[Averager] = Catalog("averager", Averager)
        self.plugins: list[Plugin] = []
        self._manager = pluggy.PluginManager("lgbench")
        self._manager.add_hookspecs(hookspecs)

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ, files: Iterable[Path] = ()) -> Registry:
        """Every plugin installed under the entry-point group, or those that LGBENCH_PLUGINS names, and those of `files`.

        Installed plugins that are broken are kept in `plugins` with their error. Raises UsageError for a name or a file that
        is not there, PluginError for a file that is broken: it was asked for. With LGBENCH_TRACE=1 hook calls are shown.
        """
        import torch  # noqa: F401  # nearly every plugin's first import, which would be laid at the door of the first one

        registry = cls()
        if environ.get("LGBENCH_TRACE", "0") not in ("", "0"):
            registry._manager.trace.root.setwriter(lambda line: print(line, end="", file=sys.__stderr__))
            registry._manager.enable_tracing()
        for entry_point in _chosen(entry_points(group=GROUP), environ.get("LGBENCH_PLUGINS")):
            registry.take(installed_source(entry_point))
        taken: dict[str, Path] = {}
        for path in dict.fromkeys(file.resolve() for file in files):
            if path.name in taken:
                raise UsageError(f"{taken[path.name]} and {path} are both {path.name}, and results name files by that")
            taken[path.name] = path
            plugin = registry.take(file_source(path))
            if plugin.error:
                raise PluginError(f"{path}: {plugin.error}")
        return registry

    def take(self, source: Source) -> Plugin:
        """Import a plugin and take in what it provides; what is wrong with it is kept, nothing is raised."""
        notes: list[str] = []
        try:
            with watched(notes):  # looking for a module within a package imports the package
                check_contract(source)
                module = source.load()
        except (Exception, SystemExit) as error:  # a stranger's import may raise anything
            said = _said(error) if isinstance(error, PluginError) else f"import failed: {_said(error)}"
            plugin = Plugin(source.name, source.distribution, error=said)
            self.plugins.append(plugin)
        else:
            plugin = self.add(module, source.name, source.distribution)
        plugin.notes = notes + plugin.notes
        return plugin

    def add(self, module: ModuleType | object, name: str, distribution: Distribution) -> Plugin:
        """Take in what one plugin provides; what is wrong with it is kept in `Plugin.error`, nothing is raised."""
        plugin = Plugin(name, distribution, module=module)
        known = [other.title for other in self.plugins if other.module is module and not other.error]
        self.plugins.append(plugin)
        if known:
            plugin.error = f"is the same module as {known[0]}: one entry point is enough"
            return plugin
        self._manager.trace.root.get("hooks of")(plugin.title)
        try:
            self._manager.register(module, name=f"{distribution.name}:{name}")
            with watched(plugin.notes):
                provided = self._provided(module)
            for catalog, item in provided:
                catalog.add(item, distribution)
                plugin.provides.setdefault(catalog.kind, []).append(item.name)
            if not plugin.provides:
                hooks = " and ".join(caller.name for caller in self._manager.get_hookcallers(module) or [])
                nothing = f"{hooks} returned nothing: end it with `return [...]`" if hooks else _UNMARKED
                raise PluginError(f"provides nothing: {nothing}")
        except (Exception, SystemExit) as error:  # its hooks are a stranger's code as well
            plugin.error = _said(error)
            if self._manager.is_registered(module):
                self._manager.unregister(module)
        return plugin

    def problems(self) -> list[str]:
        """A sentence for each plugin that failed and each name that clashes."""
        failed = [f"{plugin.title}: {plugin.error}" for plugin in self.plugins if plugin.error]
        return failed + [clash for catalog in self.catalogs().values() for clash in catalog.clashes()]

    def notes(self) -> list[str]:
        """A sentence for each thing that is wrong with a plugin and hurts nobody."""
        return [f"{plugin.title} {note}" for plugin in self.plugins for note in plugin.notes]

    def catalogs(self) -> dict[str, Catalog[Any]]:
        """All catalogs, by kind."""
        every = (self.tasks, self.architectures, self.norms, self.attentions, self.positions, self.averagers)
        return {catalog.kind: catalog for catalog in every}

    def _provided(self, module: object) -> list[tuple[Catalog[Any], Any]]:
        """Call the hooks of one plugin and check what they return, before any of it is taken in."""
        self._refuse_misspelt(module)
        others = [plugin for plugin in self._manager.get_plugins() if plugin is not module]
        found: list[tuple[Catalog[Any], Any]] = []
        for catalog in self.catalogs().values():
            hook, contract = f"lgbench_{catalog.kind}s", catalog.contract
            for items in self._manager.subset_hook_caller(hook, others)():
                for item in items:
                    if not isinstance(item, contract):
                        raise PluginError(f"{hook} returned {item!r}, expected objects of lgbench.{contract.__name__}")
                    require_declared(item, contract)
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
    if not wanted:
        return available
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in {e.name for e in available}:
            raise UsageError(f"LGBENCH_PLUGINS: {unknown('plugin', name, (e.name for e in available))}")
    return [e for e in available if e.name in names]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, PluginError) else str(error)
