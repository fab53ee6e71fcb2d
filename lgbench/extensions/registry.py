"""Registry of plugins, built-in and external alike: catalogs of objects by name, each object checked against its contract.

A broken plugin is reported, without harm to other plugins.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import lgbench.contracts as contracts
from lgbench.checkout import ROOT
from lgbench.contracts import HARNESS_METRICS, METRIC_NAME, NAME, RESERVED_NAMES, Measurement, Named
from lgbench.errors import PluginError, UsageError, located, unknown
from lgbench.extensions import loading
from lgbench.extensions.function_files import function_source
from lgbench.extensions.loading import Distribution
from lgbench.terminal import sentence

Item = TypeVar("Item", bound=Named)

DIRECTORY = Path(__file__).with_name("directory.toml")
"""Known packages of plugins, with the names that they provide."""


@dataclass(frozen=True)
class Found(Generic[Item]):
    """Object from a plugin."""

    label: str
    """Name in results. For an object from a file, with the start of the file's hash, my-norm~1a2b3c4d, so that results of two
    versions of the file never mix. A label is also a valid name."""
    thing: Item
    origin: Distribution
    listed: bool
    """False for a task that another task of its family makes on demand, such as dyck-3-4."""

    @classmethod
    def of(cls, name: str, thing: Item, origin: Distribution, listed: bool = True) -> Found[Item]:
        return cls(f"{name}~{origin.stamp}" if origin.stamp else name, thing, origin, listed)

    @cached_property
    def by_path(self) -> bool:
        """Whether users name the object by a path, ./my_model.py:build, and leave its name to others."""
        return bool(loading.parted(Path(self.origin.name))[1])


class Catalog(Generic[Item]):
    """Objects of one kind by name, each with its distribution. A name from two plugins is unusable."""

    def __init__(self, kind: str, contract: Any, sibling: Callable[[Item, str], Item | None] = lambda item, name: None) -> None:
        self.kind = kind
        self.contract = contract
        self._sibling: Callable[[Item, str], Item | None] = sibling
        self._items: dict[str, list[Found[Item]]] = {}

    def add(self, item: Item, distribution: Distribution) -> None:
        self._items.setdefault(item.name, []).append(Found.of(item.name, item, distribution))

    def __iter__(self) -> Iterator[Item]:
        return (self[name] for name in self.names())

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __getitem__(self, name: str) -> Item:
        """Object by name. Raises UsageError for an unknown name, PluginError for a name from two plugins."""
        return self.found(name).thing

    def get(self, name: str) -> Item | None:
        """Object by name; None for an unknown name. Raises PluginError as indexing does."""
        found = self._find(name)
        return found.thing if found else None

    def found(self, name: str) -> Found[Item]:
        """Object by name, with its label and origin. Raises the same errors as indexing."""
        found = self._find(name)
        if found is None:
            raise not_installed(self.kind, name, self.names())
        return found

    def names(self) -> list[str]:
        """All usable names, sorted."""
        return sorted(name for name in self._items if len(self._named(name)) == 1)

    def clashes(self) -> list[str]:
        """One sentence for each name from more than one object."""
        return [self._clash(name, found) for name in sorted(self._items) if len(found := self._named(name)) > 1]

    def _named(self, name: str) -> list[Found[Item]]:
        """Objects with a plain name. One from a function file has it only where no other object does."""
        found = self._items.get(name, [])
        return [each for each in found if not each.by_path] or found

    def _clash(self, name: str, several: Sequence[Found[Item]]) -> str:
        owners = sentence(" and ".join(dict.fromkeys(f"{each.origin.name} {each.origin.version}" for each in several)))
        if all(each.origin == several[0].origin for each in several):
            return f"{owners} provides {len(several)} objects named {name!r}, so none can be used: give each a name of its own"
        labels = " or ".join(each.label for each in several if each.origin.stamp)
        return (
            f"{self.kind} {name!r} is provided by {owners}, so it cannot be used: "
            "uninstall one, or name the plugins to load in LGBENCH_PLUGINS"
        ) + (f", or use {labels} for that of the file" if labels else "")

    def _find(self, name: str) -> Found[Item] | None:
        if not isinstance(name, str):
            raise UsageError(f"{name!r:.100} is no name of the kind {self.kind}: name one as text")
        plain, _, stamp = name.partition("~")
        found = [each for each in self._items.get(plain, []) if each.origin.stamp == stamp] if stamp else self._named(plain)
        found = found or self._unlisted(plain, stamp)
        if len(found) > 1:
            raise PluginError(self._clash(plain, found))
        return found[0] if found else None

    def _unlisted(self, name: str, stamp: str) -> list[Found[Item]]:
        """Unlisted objects of a family, such as dyck-K-M, one from each plugin. Only members of the name's family are asked."""
        members = [each for found in self._items.values() for each in found if stamp in ("", each.origin.stamp)]
        families = [(each, family) for each in members if (family := self._family(each.thing))]
        own = {(each.origin, family): each for each, family in families if name.startswith(f"{family}-")}
        siblings = ((self._sibling_of(each.thing, name, origin), origin) for (origin, _), each in own.items())
        return [Found.of(name, sibling, origin, listed=False) for sibling, origin in siblings if sibling is not None]

    def _sibling_of(self, item: Item, name: str, origin: Distribution) -> Item | None:
        """Answer of a family's member for a name. Raises UsageError for an impossible object, PluginError for a wrong one."""
        try:
            sibling = self._sibling(item, name)
        except ValueError as reason:
            raise UsageError(f"no {self.kind} {name!r}: {reason}") from reason
        except Exception:  # a plugin's code may raise anything, such as an IndexError for a name of another form
            return None
        if sibling is None:
            return None
        named = isinstance(sibling, self.contract) and (getattr(sibling, "name", ""), self._family(sibling))
        if named not in ((name, self._family(item)), (name, name)):
            asked = (
                f"{origin.name} {origin.version} was asked for the {self.kind} {name!r} of the family {self._family(item)!r}"
            )
            raise PluginError(f"{sentence(asked)} and gave {sentence(repr(sibling))}: give an object of that name, or None")
        require_declared(sibling, self.contract)
        return sibling

    @staticmethod
    def _family(item: Item) -> str:
        return str(getattr(item, "family", ""))


def require_declared(thing: Any, contract: type) -> None:
    """Raise PluginError, naming the attribute, if `thing` lacks something that `contract` declares, or has another type."""
    what = f"an object of {type(thing).__name__}"
    for attribute, hint in _hints(contract).items():
        expected = f"lgbench.{contract.__name__} declares {attribute}: {_written(contract, attribute)}"
        try:
            value = getattr(thing, attribute)
        except AttributeError:
            raise PluginError(f"{what} has no {attribute}; {expected}") from None
        if not _is(value, hint):
            raise PluginError(f"{what} has the {attribute} {value!r}; {expected}")
    _require_name(thing.name, what, contract)  # which every contract declares


def _require_name(name: str, what: str, contract: type) -> None:
    measured = contract is Measurement
    pattern, separators, free = (METRIC_NAME, "underscores", "my_") if measured else (NAME, "hyphens", "my-")
    if not pattern.fullmatch(name):
        raise PluginError(f"{what} has the name {name!r}: use lower-case letters, digits and {separators}, at most 100")
    if name in RESERVED_NAMES or (measured and name in HARNESS_METRICS):
        raise PluginError(f"{what} has the name {name!r}, which is reserved: use another, such as {free}{name}")


def _is(value: object, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return any(_is(value, part) for part in parts)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(_is(k, parts[0]) and _is(v, parts[1]) for k, v in value.items())
    if kind in (tuple, frozenset):
        if not isinstance(value, kind):
            return False
        kinds = parts if kind is tuple and ... not in parts else parts[:1] * len(value)
        return len(value) == len(kinds) and all(map(_is, value, kinds))
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _written(contract: type, attribute: str) -> str:
    """Source text of an annotation in the contract or its base class."""
    owner = next(each for each in contract.__mro__ if attribute in each.__dict__.get("__annotations__", {}))
    return str(owner.__annotations__[attribute])


@cache
def _hints(contract: type) -> Mapping[str, Any]:
    return get_type_hints(contract)


def not_installed(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Error for a name of no installed plugin: with the package that has it, or else with the nearest known name."""
    found = _packages(name)
    for package, url, own in found:
        if own in kind or kind == ANYTHING:
            return UsageError(f"no {kind} {name!r} is installed; {name} is in {package}: {_installing(package, url)}")
    for package, _, own in found:
        return UsageError(f"no {kind} {name!r}: {name} is of the kind {own}, in {package}")
    return unknown(kind, name, known)


ANYTHING = "object"
"""Kind in the error of a command that takes names of all kinds."""


def _packages(name: str) -> list[tuple[str, str, str]]:
    """Name and address of each listed package that provides a name, with the name's kind."""
    listed = tomllib.loads(DIRECTORY.read_text(encoding="utf-8"))["plugin"]
    return [
        (package["name"], package["url"], kind)
        for package in listed
        for kind, names in package.items()
        if isinstance(names, list) and name in names
    ]


def _installing(package: str, url: str) -> str:
    """Command that installs a package. Those of this repository are installed from its checkout."""
    if not url.startswith("contrib/"):
        return f"pip install {package}"
    folder = ROOT / "plugins" / url
    if not folder.is_dir():
        return f"pip install ./plugins/{url}, in a checkout of lgbench"
    return f"pip install {f'./{folder.relative_to(Path.cwd())}' if folder.is_relative_to(Path.cwd()) else folder}"


UNMARKED = "no function in it is marked with @lgbench.hookimpl"


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
                lacks = "ModuleNotFoundError" in plugin.error
                advice = f"; if it lies beside the file, set PYTHONPATH={path.parent}" if lacks else ""
                raise PluginError(f"{path}: {plugin.error}{advice}")
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

    def add(self, module: ModuleType | object, name: str, distribution: Distribution) -> Plugin:
        """Add the objects of an imported plugin. An error is kept in :attr:`Plugin.error`."""
        file = getattr(module, "__file__", None)
        return self.take(
            loading.PluginSource(name, distribution, lambda: Path(file).read_bytes() if file else None, lambda: module)
        )

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
    # The message of a SyntaxError has the line; the last frame is the compiler's.
    in_code = isinstance(error, Exception) and not isinstance(error, SyntaxError)
    message = sentence(located(error) if in_code else f"{type(error).__name__}: {error}")
    removed = isinstance(error, ImportError) and error.name == "lgbench"  # a name that lgbench has no longer
    return f"{message}. If the plugin was written for an earlier contract, {loading.outdated()}" if removed else message
