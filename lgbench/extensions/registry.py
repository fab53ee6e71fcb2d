"""Discovery of plugins, built-in and external alike. A broken plugin is reported, without harm to other plugins."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from lgbench import hookspecs
from lgbench.contracts import (
    Architecture,
    Attention,
    Averager,
    Executor,
    Measurement,
    NormScheme,
    Optimizer,
    Position,
    Task,
    Tracker,
)
from lgbench.errors import PluginError, UsageError, unknown
from lgbench.extensions.catalog import Catalog, require_declared
from lgbench.extensions.function_files import function_source
from lgbench.extensions.loading import (
    BUILT_IN,
    GROUP,
    Distribution,
    PluginSource,
    check_contract,
    file_source,
    installed_source,
    outdated,
    parted,
    watched,
)
from lgbench.terminal import sentence

_UNMARKED = "no function in it is marked with @lgbench.hookimpl"


@dataclass
class Plugin:
    """Entry point or file, with its provided objects or its error."""

    name: str
    distribution: Distribution
    provides: dict[str, list[str]] = field(default_factory=dict)
    """Names by kind."""
    error: str | None = None
    """Reason why the plugin is unusable; None for a usable plugin."""
    notes: list[str] = field(default_factory=list)
    """Harmless flaws."""
    module: object = field(default=None, repr=False)
    """Module or object with the hooks; None after a failed import."""

    @property
    def title(self) -> str:
        return sentence(f"plugin {self.name} ({self.distribution.name} {self.distribution.version})")


class Registry:
    """Catalogs of all objects from plugins. :meth:`load` reads the installed plugins; no registry is global."""

    def __init__(self) -> None:
        self.tasks: Catalog[Task] = Catalog("task", Task, lambda task, name: task.sibling(name))
        self.architectures: Catalog[Architecture] = Catalog("architecture", Architecture)
        self.norms: Catalog[NormScheme] = Catalog("norm", NormScheme)
        self.attentions: Catalog[Attention] = Catalog("attention", Attention)
        self.positions: Catalog[Position] = Catalog("position", Position)
        self.optimizers: Catalog[Optimizer] = Catalog("optimizer", Optimizer)
        self.averagers: Catalog[Averager] = Catalog("averager", Averager)
        self.measurements: Catalog[Measurement] = Catalog("measurement", Measurement)
        self.trackers: Catalog[Tracker] = Catalog("tracker", Tracker)
        self.executors: Catalog[Executor] = Catalog("executor", Executor)
        self.plugins: list[Plugin] = []
        self._manager = pluggy.PluginManager("lgbench")
        self._manager.add_hookspecs(hookspecs)

    @classmethod
    def load(
        cls, environ: Mapping[str, str] = os.environ, files: Iterable[Path] = (), only: Collection[str] | None = None
    ) -> Registry:
        """Registry of all installed plugins, or the plugins named in LGBENCH_PLUGINS, and of `files`.

        A file may be `my_model.py:build`, with a function for a model. `only` limits the import to built-in
        plugins and to these names of distributions and files.

        A broken installed plugin is kept in `plugins` with its error. Raises UsageError for an unknown name or a missing file,
        and PluginError for a broken file. LGBENCH_TRACE=1 shows the calls of hooks.
        """
        import torch  # noqa: F401  # else its import would count as import time of the first plugin

        registry = cls()
        if environ.get("LGBENCH_TRACE", "0") not in ("", "0"):
            registry._manager.trace.root.setwriter(lambda line: print(line, end="", file=sys.__stderr__))
            registry._manager.enable_tracing()
        chosen = _chosen(entry_points(group=GROUP), environ.get("LGBENCH_PLUGINS"))
        if only is not None:
            chosen = [each for each in chosen if each.dist and each.dist.name in (BUILT_IN, *only)]
            files = [file for file in files if file.name in only]
        for entry_point in chosen:
            registry.take(installed_source(entry_point))
        taken: dict[str, Path] = {}
        for path in dict.fromkeys(file.resolve() for file in files):
            if path.name in taken:
                raise UsageError(f"{taken[path.name]} and {path} have one name, and results name files by it: rename one")
            taken[path.name] = path
            source = function_source(path) if parted(path)[1] else file_source(path)
            plugin = registry.take(source)
            if plugin.error:
                raise PluginError(f"{path}: {plugin.error}")
        return registry

    def take(self, source: PluginSource) -> Plugin:
        """Import a plugin and add its objects. An error is kept in :attr:`Plugin.error`."""
        notes: list[str] = []
        try:
            with watched(notes):  # finding a module within a package imports the package
                check_contract(source)
                module = source.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an import may raise anything
            message = _message(error) if isinstance(error, PluginError) else f"import failed: {_message(error)}"
            plugin = Plugin(source.name, source.distribution, error=message)
            self.plugins.append(plugin)
        else:
            plugin = self.add(module, source.name, source.distribution)
        plugin.notes = notes + plugin.notes
        return plugin

    def add(self, module: ModuleType | object, name: str, distribution: Distribution) -> Plugin:
        """Add the objects of one plugin. An error is kept in :attr:`Plugin.error`."""
        plugin = Plugin(name, distribution, module=module)
        known = [other.title for other in self.plugins if other.module is module and not other.error]
        self.plugins.append(plugin)
        if known:
            plugin.error = f"is the same module as {known[0]}: remove one of the two entry points"
            return plugin
        self._manager.trace.root.get("hooks of")(plugin.title)
        provided: list[tuple[Catalog[Any], Any]] = []
        try:
            self._manager.register(module, name=f"{distribution.name}:{name}")
            with watched(plugin.notes):
                provided = self._provided(module)
            if not provided:
                hooks = " and ".join(caller.name for caller in self._manager.get_hookcallers(module) or [])
                nothing = f"{hooks} returned nothing: end it with `return [...]`" if hooks else _UNMARKED
                raise PluginError(f"provides nothing: {nothing}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a hook may raise anything
            plugin.error = _message(error)
        if plugin.error:
            if self._manager.is_registered(module):
                self._manager.unregister(module)
            return plugin
        for catalog, item in provided:
            catalog.add(item, distribution)
            plugin.provides.setdefault(catalog.kind, []).append(item.name)
        return plugin

    def loaded(self) -> tuple[Distribution, ...]:
        """Distributions of all usable plugins, sorted by name."""
        found = {plugin.distribution.name: plugin.distribution for plugin in self.plugins if not plugin.error}
        return tuple(found[name] for name in sorted(found))

    def problems(self) -> list[str]:
        """Sentence for each broken plugin and each name clash."""
        failed = [f"{plugin.title}: {plugin.error}" for plugin in self.plugins if plugin.error]
        return failed + [clash for catalog in self.catalogs().values() for clash in catalog.clashes()]

    def notes(self) -> list[str]:
        """Sentence for each harmless flaw of a plugin."""
        return [f"{plugin.title} {note}" for plugin in self.plugins for note in plugin.notes]

    def catalogs(self) -> dict[str, Catalog[Any]]:
        """All catalogs, by kind."""
        parts = (self.norms, self.attentions, self.positions)
        every: tuple[Catalog[Any], ...] = (self.tasks, self.architectures, *parts)
        others = (self.optimizers, self.averagers, self.measurements, self.trackers, self.executors)
        return {catalog.kind: catalog for catalog in (*every, *others)}

    def _provided(self, module: object) -> list[tuple[Catalog[Any], Any]]:
        """Objects from the hooks of one plugin, each with its catalog, all checked against their contracts."""
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


def _message(error: BaseException) -> str:
    if isinstance(error, PluginError):
        return sentence(str(error))
    try:
        message = sentence(f"{type(error).__name__}: {error}")
    except Exception:  # the error is a plugin's own, and may not even have a text
        message = sentence(type(error).__name__)
    removed = isinstance(error, ImportError) and error.name == "lgbench"
    return f"{message}. If the plugin was written for an earlier contract, {outdated()}" if removed else message
