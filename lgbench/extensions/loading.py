"""Import of a single plugin: a check of its contract, hidden output, a measured import time, and the hash of its sources."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import EntryPoint, PackageNotFoundError, requires, version
from itertools import accumulate
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import pluggy
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lgbench.hookspecs as hookspecs
from lgbench.checkout import changed_sources, digest
from lgbench.contracts import CONTRACT
from lgbench.errors import PluginError, UsageError, unknown
from lgbench.terminal import sentence

Item = TypeVar("Item")

GROUP = "lgbench"
"""The entry-point group of plugins."""
BUILT_IN = "lgbench"
"""The distribution that brings the built-in plugins."""

How = Literal["index", "wheel", "archive", "folder", "editable", "version control", "file", "unknown"]
"""Kind of installation: package index, wheel or other archive, folder (editable or not), version control, or plugin file."""

SLOW_SECONDS = 2.0
"""Processor time of an import above which a note appears, since every command with plugins waits for it. Not a clock's time: on
a busy machine, or from a cold disk, any import takes seconds."""


@dataclass(frozen=True)
class Distribution:
    """Origin of a plugin: an installed package, or a file named by the user."""

    name: str
    """The name of the package or the file."""
    version: str
    """The package's version, or "sha256:" and the hash of the file's content."""
    url: str = field(default="", compare=False)
    """URL of the installed package, or path of the file; empty for a package index."""
    installed: How = field(default="unknown", compare=False)
    origin: str | None = field(default=None, compare=False)
    """Public origin of the package, without local paths and passwords; None for a package index or a folder."""
    modules: tuple[str, ...] = field(default=(), compare=False)
    """The modules of its entry points."""

    @cached_property
    def source(self) -> str:
        """First 16 hexadecimal digits of the hash of its sources; UNKNOWN without sources.

        For lgbench, empty, since versions of tasks and protocols identify its numbers; in a checkout with uncommitted changes,
        the hash of the changed files. Raises PluginError for sources changed since their import.
        """
        if self.name == BUILT_IN:
            return changed_sources() if self.installed == "editable" else ""
        _, file, digits = self.version.partition("sha256:")
        return digits[:16] if file else source_of(self.modules)

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of the package's dependencies, except lgbench and torch. Empty for lgbench and for plugin files."""
        return {} if self.name == BUILT_IN or self.stamp else dict(libraries_of(self.name))

    @property
    def stamp(self) -> str:
        """First 8 digits of a file's hash, appended to names in results; empty for a package."""
        _, file, digits = self.version.partition("sha256:")
        return digits[:8] if file else ""


@dataclass(frozen=True)
class PluginSource:
    """Plugin before its import."""

    name: str
    distribution: Distribution
    read: Callable[[], bytes | None]
    """Returns the source; None without a source file."""
    load: Callable[[], Any]
    """Imports the plugin. Returns the module or object with its hooks."""


def installed_source(entry_point: EntryPoint) -> PluginSource:
    """Plugin behind an entry point."""

    def read() -> bytes | None:
        spec = importlib.util.find_spec(entry_point.module)
        return Path(spec.origin).read_bytes() if spec and spec.origin and spec.origin.endswith(".py") else None

    return PluginSource(entry_point.name, _distribution(entry_point), read, entry_point.load)


def parted(path: Path) -> tuple[Path, str]:
    """Plugin file and name of a function, from my_model.py:build; an empty name without a function.

    >>> [(file.name, function) for file, function in map(parted, (Path("my_model.py:build"), Path("my_norm.py")))]
    [('my_model.py', 'build'), ('my_norm.py', '')]
    """
    file, colon, function = path.name.rpartition(":")
    return (path.with_name(file), function) if colon and file.endswith(".py") else (path, "")


def file_source(path: Path, named: str = "", plugin_in: Callable[[ModuleType], Any] = lambda module: module) -> PluginSource:
    """Plugin in a file. Raises UsageError for a missing file, or a name without the suffix .py.

    `plugin_in` makes the plugin from the file's module. `named` is the name in results, by default the file's name.
    """
    if path.suffix != ".py" or not path.is_file():
        how = f"in --arch ./my_model.py:{named.rpartition(':')[2]}" if named else "in --plugin ./my_norm.py"
        raise UsageError(f"no plugin file {str(path)!r}: name a Python file, as {how}")
    content = path.read_bytes()
    digits = hashlib.sha256(content).hexdigest()
    distribution = Distribution(named or path.name, f"sha256:{digits}", str(path), installed="file")

    def load() -> Any:
        # The hash in the module's name avoids clashes with other modules and with other versions of the file.
        name = f"lgbench_plugin_{path.stem}_{digits[:8]}"
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        try:
            # Runs the hashed content: the file may have changed meanwhile, and Python's cache may be older.
            exec(compile(content, path, "exec"), vars(module))
            return plugin_in(module)
        except BaseException:  # whatever the import raises, it leaves no half-made module, and the error goes on
            del sys.modules[name]
            raise

    return PluginSource(path.stem, distribution, lambda: content, load)


_STATED = re.compile(rb"""^LGBENCH_CONTRACT\b[^=\n]*=\s*["']([^"'\n]*)["']""", re.MULTILINE)
"""Line of a plugin's source with the version of its contract, such as LGBENCH_CONTRACT = "3.0"."""


def check_contract(source: PluginSource) -> None:
    """Raise PluginError for a plugin with an unsupported version of the contracts.

    The version is read from the source, since the import of a plugin for a newer contract may fail for any reason.
    """
    found = _STATED.search(source.read() or b"")
    if not found:
        return
    stated = found[1].decode()
    here = ".".join(map(str, CONTRACT))
    major, dot, minor = stated.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise PluginError(f"has the LGBENCH_CONTRACT {stated!r}, expected a version such as {here!r}")
    if int(major) != CONTRACT[0] or int(minor) > CONTRACT[1]:
        newer = (int(major), int(minor)) > CONTRACT
        remedy = "upgrade lgbench" if newer else outdated()
        raise PluginError(f"is written for contract {stated} and was not imported. This lgbench has contract {here}: {remedy}")


def manager_of(plugin: object) -> pluggy.PluginManager:
    """Manager of the hooks of one plugin alone. Raises PluginError for a misspelt hook."""
    manager = pluggy.PluginManager("lgbench")  # one for each plugin, so that the origin of every object is known
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    for caller in manager.get_hookcallers(plugin) or []:
        if not caller.has_spec():
            raise PluginError(
                str(unknown("hook", caller.name, (name for name in vars(hookspecs) if name.startswith("lgbench_"))))
            )
    return manager


def provided(manager: pluggy.PluginManager, hook: str, contract: type[Item]) -> list[Item]:
    """Objects from one hook of a plugin. Raises PluginError for anything else."""
    found: list[Item] = []
    kind = f"{contract.__module__.partition('.')[0]}.{contract.__name__}"
    for items in getattr(manager.hook, hook)():
        if not isinstance(items, Iterable):
            raise PluginError(f"{hook} returned {items!r}, expected a list of objects of {kind}: end it with `return [...]`")
        for item in items:
            if not isinstance(item, contract):
                remedy = f": call the class, as in {item.__name__}()" if isinstance(item, type) else ""
                raise PluginError(f"{hook} returned {item!r}, expected objects of {kind}{remedy}")
            found.append(item)
    return found


def outdated() -> str:
    """Advice for the user of a plugin that was written for an earlier contract."""
    return f"upgrade the plugin to a release for contract {CONTRACT[0]}"


@contextlib.contextmanager
def watched(notes: list[str]) -> Iterator[None]:
    """Hide a plugin's output in the block. Append notes about output and a slow import to `notes`.

    Afterwards the environment, inherited by workers, and torch's default dtype and number of threads, used in planning, are as
    before.
    """
    import torch

    printed, environ, dtype, threads = io.StringIO(), dict(os.environ), torch.get_default_dtype(), torch.get_num_threads()
    started = time.thread_time()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield
    finally:
        seconds = time.thread_time() - started
        if os.environ != environ:
            os.environ.clear()
            os.environ.update(environ)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if seconds > SLOW_SECONDS:
            notes.append(
                f"takes {seconds:.1f} s to import, and every command that needs plugins waits for it: "
                "import slow modules, and build large objects, inside the functions that use them"
            )
        if lines := printed.getvalue().strip().splitlines():
            why = "which is hidden because it would spoil a command's output"
            notes.append(f"prints when it is imported, {why}: {sentence(repr(lines[0]))}")


def _distribution(entry_point: EntryPoint) -> Distribution:
    installed = entry_point.dist
    assert installed  # of entry points from `entry_points`
    metadata = installed.metadata  # every access parses the file anew
    modules = tuple(sorted({each.module for each in installed.entry_points if each.group == GROUP}))
    direct = json.loads(installed.read_text("direct_url.json") or "{}")  # for a package from outside an index (PEP 610)
    return Distribution(metadata["Name"], metadata["Version"], direct.get("url", ""), _how(direct), _origin(direct), modules)


def _how(direct: dict[str, Any]) -> How:
    if not direct:
        return "index"
    if "vcs_info" in direct:
        return "version control"
    if "archive_info" in direct:
        return "wheel" if urlsplit(str(direct.get("url"))).path.endswith(".whl") else "archive"
    return "editable" if direct.get("dir_info", {}).get("editable") else "folder"


def _origin(direct: dict[str, Any]) -> str | None:
    """URL of a package, with its commit; for a local file, only its name; None for a folder or an index."""
    if not ("vcs_info" in direct or "archive_info" in direct):
        return None
    url = urlsplit(str(direct.get("url")))
    port = f":{url.port}" if url.port else ""
    place = f"{url.scheme}://{url.hostname}{port}{url.path}" if url.hostname else PurePosixPath(url.path).name
    commit = direct.get("vcs_info", {}).get("commit_id")
    return f"{place}@{commit}" if commit else place


UNKNOWN = "unknown"
"""Stands for the hash of code without files."""

_imported: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""Hash of each package at the first request, just after its import."""


def source_of(modules: Iterable[str]) -> str:
    """First 16 hexadecimal digits of the hash of the packages of imported modules: names and code of all .py files.

    A module outside a package counts alone. Raises PluginError for files changed since their import, since the numbers could
    come from either version.
    """
    packages = {name: files for module in modules for name, files in _package(module)}
    for name, files in packages.items():
        module = sys.modules.get(name)
        if isinstance(module, ModuleType) and _imported.setdefault(module, found := digest(files)) != found:
            raise PluginError(f"the sources of {name} have changed since this process imported them: start Python anew")
    return digest(file for files in packages.values() for file in files) if packages else UNKNOWN


def _package(module: str) -> Iterator[tuple[str, list[tuple[str, Path]]]]:
    """Name and files of the outermost package with code. Namespace packages are skipped: several distributions share them."""
    for name in accumulate(module.split("."), "{}.{}".format):
        spec = importlib.util.find_spec(name)
        if spec is None:
            return
        if spec.origin and Path(spec.origin).is_file():
            folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
            inner = [(f"{name}/{p.relative_to(folder).as_posix()}", p) for folder in folders for p in folder.rglob("*.py")]
            yield name, inner or [(Path(spec.origin).name, Path(spec.origin))]
            return


KNOWN = {"lgbench", "torch"}
"""Libraries of every plugin. The metadata of each run has their versions already."""


@cache
def libraries_of(package: str) -> tuple[tuple[str, str], ...]:
    """Names and versions of a package's installed dependencies, sorted, except lgbench, torch and extras.

    Empty for a missing package. A missing dependency is left out, since the package works without it.
    """
    try:
        required = [Requirement(text) for text in requires(package) or []]
    except PackageNotFoundError:
        return ()
    needed = {canonicalize_name(each.name) for each in required if not each.marker or each.marker.evaluate({"extra": ""})}
    return tuple((name, found) for name in sorted(needed - KNOWN) if (found := installed_version(name)))


def installed_version(name: str) -> str | None:
    """Version of a package; None for a missing package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
