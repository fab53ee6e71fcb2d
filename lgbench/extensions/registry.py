"""Discovery of plugins, built-in and external alike. A broken plugin is reported, without harm to other plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import lgbench.contracts as contracts
from lgbench.errors import PluginError, UsageError, unknown
from lgbench.extensions import loading
from lgbench.extensions.catalog import Catalog, require_declared
from lgbench.extensions.function_files import function_source
from lgbench.terminal import sentence

UNMARKED = "no function in it is marked with @lgbench.hookimpl"


@dataclass
class Plugin:
    """Entry point or file, with its provided objects or its error."""

    name: str
    distribution: loading.Distribution
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
        self.tasks: Catalog[contracts.Task] = Catalog("task", contracts.Task, lambda task, name: task.sibling(name))
        self.architectures: Catalog[contracts.Architecture] = Catalog("architecture", contracts.Architecture)
        self.norms: Catalog[contracts.NormScheme] = Catalog("norm", contracts.NormScheme)
        self.attentions: Catalog[contracts.Attention] = Catalog("attention", contracts.Attention)
        self.positions: Catalog[contracts.Position] = Catalog("position", contracts.Position)
        self.optimizers: Catalog[contracts.Optimizer] = Catalog("optimizer", contracts.Optimizer)
        self.averagers: Catalog[contracts.Averager] = Catalog("averager", contracts.Averager)
        self.measurements: Catalog[contracts.Measurement] = Catalog("measurement", contracts.Measurement)
        self.loggers: Catalog[contracts.Logger] = Catalog("logger", contracts.Logger)
        self.executors: Catalog[contracts.Executor] = Catalog("executor", contracts.Executor)
        self.plugins: list[Plugin] = []
        self._trace = False

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
        registry._trace = environ.get("LGBENCH_TRACE", "0") not in ("", "0")
        chosen = _chosen(entry_points(group=loading.GROUP), environ.get("LGBENCH_PLUGINS"))
        if only is not None:
            chosen = [each for each in chosen if each.dist and each.dist.name in (loading.BUILT_IN, *only)]
        for entry_point in chosen:
            registry.take(loading.installed_source(entry_point))
        taken: dict[str, Path] = {}
        for path in dict.fromkeys(file.resolve() for file in files):
            if path.name in taken:
                raise UsageError(f"{taken[path.name]} and {path} have one name, and results name files by it: rename one")
            taken[path.name] = path
            source = function_source(path) if loading.parted(path)[1] else loading.file_source(path)
            if only is not None and path.name not in only:
                continue
            plugin = registry.take(source)
            if plugin.error:
                raise PluginError(f"{path}: {plugin.error}")
        return registry

    def take(self, source: loading.PluginSource) -> Plugin:
        """Import a plugin and add its objects. An error is kept in :attr:`Plugin.error`."""
        plugin = Plugin(source.name, source.distribution)
        self.plugins.append(plugin)
        try:
            with loading.watched(plugin.notes):
                loading.check_contract(source)
                plugin.module = source.load()
                found = self._provided(plugin)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an import or a hook may raise anything
            stage = "its hooks failed" if plugin.module else "import failed"
            plugin.error = _message(error) if isinstance(error, PluginError) else f"{stage}: {_message(error)}"
            return plugin
        for catalog, item in found:
            catalog.add(item, plugin.distribution)
            plugin.provides.setdefault(catalog.kind, []).append(item.name)
        return plugin

    def add(self, module: ModuleType | object, name: str, distribution: loading.Distribution) -> Plugin:
        """Add the objects of an imported plugin. An error is kept in :attr:`Plugin.error`."""
        return self.take(loading.PluginSource(name, distribution, lambda: None, lambda: module))

    def loaded(self) -> tuple[loading.Distribution, ...]:
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
        return {catalog.kind: catalog for catalog in vars(self).values() if isinstance(catalog, Catalog)}

    def _provided(self, plugin: Plugin) -> list[tuple[Catalog[Any], Any]]:
        """Objects from the hooks of one plugin, each with its catalog, all checked against their contracts."""
        manager = loading.manager_of(plugin.module)
        if self._trace:
            # Not sys.stderr, which is hidden while a plugin is imported.
            manager.trace.root.setwriter(lambda line: print(line, end="", file=sys.__stderr__))
            manager.trace.root.get("hooks of")(plugin.title)
            manager.enable_tracing()
        found: list[tuple[Catalog[Any], Any]] = []
        for catalog in self.catalogs().values():
            for item in loading.provided(manager, f"lgbench_{catalog.kind}s", catalog.contract):
                require_declared(item, catalog.contract)
                found.append((catalog, item))
        if not found:
            hooks = " and ".join(caller.name for caller in manager.get_hookcallers(plugin.module) or [])
            why = f"{hooks} returned nothing: end it with `return [...]`" if hooks else UNMARKED
            raise PluginError(f"provides nothing: {why}")
        return found


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
    message = sentence(f"{type(error).__name__}: {error}")
    removed = isinstance(error, ImportError) and error.name == "lgbench"  # a name that lgbench has no longer
    return f"{message}. If the plugin was written for an earlier contract, {loading.outdated()}" if removed else message
