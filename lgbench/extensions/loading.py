"""Importing one plugin so that nothing else suffers: its contract is read first, its output is hidden, its time is measured."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import Distribution as InstalledDistribution
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Literal
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from lgbench.checkout import changed_sources, digest
from lgbench.contracts import CONTRACT
from lgbench.errors import PluginError, UsageError
from lgbench.terminal import sentence

GROUP = "lgbench"
"""The entry-point group of plugins."""
BUILT_IN = "lgbench"
"""The distribution that brings the built-in plugins."""

How = Literal["index", "wheel", "archive", "folder", "editable", "version control", "file", "unknown"]
"""How a plugin came here: from a package index; from a wheel or another archive that was named; from a folder, editable or not;
from version control; or it is a plugin file."""

SLOW_SECONDS = 2.0
"""An import that takes longer is reported: every command that needs plugins waits for it."""


@dataclass(frozen=True)
class Distribution:
    """Where a plugin comes from: an installed package, or a file that the user named."""

    name: str
    """The name of the package or the file."""
    version: str
    """The package's version, or "sha256:" and the hash of the file's content."""
    url: str = field(default="", compare=False)
    """The place that the package was installed from, or the file's path; empty for a package index."""
    editable: bool = field(default=False, compare=False)
    installed: How = field(default="unknown", compare=False)
    origin: str | None = field(default=None, compare=False)
    """The place that it was installed from, as others may know it: without paths of this machine and without passwords."""
    modules: tuple[str, ...] = field(default=(), compare=False)
    """The modules of its entry points."""

    @cached_property
    def source(self) -> str:
        """16 hexadecimal digits of its sources, UNKNOWN where there are none.

        Those of lgbench are empty, for the versions of tasks and protocols say when its numbers change. Only in a checkout
        with changes that nobody has committed, they are the digits of what was changed. Raises PluginError where sources have
        changed since their import.
        """
        if self.name == BUILT_IN:
            return changed_sources() if self.editable else ""
        _, file, digits = self.version.partition("sha256:")
        return digits[:16] if file else source_of(self.modules)

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that a package stands on, other than lgbench and torch. None for lgbench and for files."""
        return {} if self.name == BUILT_IN or self.stamp else dict(libraries_of(self.name))

    @property
    def stamp(self) -> str:
        """The first 8 digits of a file's hash, which results append to its names; empty for a package."""
        _, file, digits = self.version.partition("sha256:")
        return digits[:8] if file else ""


@dataclass(frozen=True)
class PluginSource:
    """A plugin that has not been imported yet."""

    name: str
    distribution: Distribution
    read: Callable[[], bytes | None]
    """Returns its source; None if it has no source file."""
    load: Callable[[], Any]
    """Imports it. Returns the module or the object that has its hooks."""


def installed_source(entry_point: EntryPoint) -> PluginSource:
    """The plugin behind an entry point."""

    def read() -> bytes | None:
        spec = importlib.util.find_spec(entry_point.module)
        return Path(spec.origin).read_bytes() if spec and spec.origin and spec.origin.endswith(".py") else None

    return PluginSource(entry_point.name, _distribution(entry_point), read, entry_point.load)


def parted(path: Path) -> tuple[Path, str]:
    """A plugin file, and the function in it that was named by my_model.py:build; empty where none was.

    >>> [(file.name, function) for file, function in map(parted, (Path("my_model.py:build"), Path("my_norm.py")))]
    [('my_model.py', 'build'), ('my_norm.py', '')]
    """
    file, colon, function = path.name.rpartition(":")
    return (path.with_name(file), function) if colon and file.endswith(".py") else (path, "")


def file_source(path: Path, named: str = "", plugin_in: Callable[[ModuleType], Any] = lambda module: module) -> PluginSource:
    """The plugin in a file. Raises UsageError if there is no such file, or if its name does not end in .py.

    `plugin_in` makes the plugin of the file's module; `named` is what results call it, by default the file's name.
    """
    if path.suffix != ".py" or not path.is_file():
        how = f"in --arch ./my_model.py:{named.rpartition(':')[2]}" if named else "in --plugin ./my_norm.py"
        raise UsageError(f"no plugin file {str(path)!r}: name a Python file, as {how}")
    content = path.read_bytes()
    digits = hashlib.sha256(content).hexdigest()
    distribution = Distribution(named or path.name, f"sha256:{digits}", str(path), installed="file")

    def load() -> Any:
        # The module's name has the hash, so that it hides no other module and no other version of itself.
        name = f"lgbench_plugin_{path.stem}_{digits[:8]}"
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        try:
            # The content that was hashed, not that of the file by now, nor Python's cache of an earlier import.
            exec(compile(content, path, "exec"), vars(module))
            return plugin_in(module)
        except BaseException:
            del sys.modules[name]
            raise

    return PluginSource(path.stem, distribution, lambda: content, load)


def check_contract(source: PluginSource) -> None:
    """Raise PluginError if the plugin names a version of the contracts that this lgbench does not support.

    The version stands in a line of the source such as LGBENCH_CONTRACT = "3.0", so that nothing has to be imported.
    """
    text = source.read()
    stated = _stated(text) if text else None
    if stated is None:
        return
    here = ".".join(map(str, CONTRACT))
    major, dot, minor = stated.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise PluginError(f"has the LGBENCH_CONTRACT {stated!r}, expected a version such as {here!r}")
    if int(major) != CONTRACT[0] or int(minor) > CONTRACT[1]:
        newer = (int(major), int(minor)) > CONTRACT
        remedy = "upgrade lgbench" if newer else outdated()
        raise PluginError(f"is written for contract {stated} and was not imported. This lgbench has contract {here}: {remedy}")


def outdated() -> str:
    """Advice for the user of a plugin that was written for an earlier contract."""
    return f"upgrade the plugin to a release for contract {CONTRACT[0]}"


@contextlib.contextmanager
def watched(notes: list[str]) -> Iterator[None]:
    """Hide what a plugin's code prints inside, and append a note about it to `notes`. A long time is noted too.

    Settings that other plugins read are restored.
    """
    printed = io.StringIO()
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), _restored():
            yield
    finally:
        seconds = time.perf_counter() - started
        if seconds > SLOW_SECONDS:
            notes.append(
                f"takes {seconds:.1f} s to import, and every command that needs plugins waits for it: "
                "import slow modules inside the functions that use them"
            )
        if lines := printed.getvalue().strip().splitlines():
            why = "which is hidden because it would spoil a command's output"
            notes.append(f"prints when it is imported, {why}: {sentence(repr(lines[0]))}")


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Restore the environment, which workers of other plugins inherit, and the settings of torch by which runs are planned."""
    import torch

    environ, dtype, threads = dict(os.environ), torch.get_default_dtype(), torch.get_num_threads()
    try:
        yield
    finally:
        if os.environ != environ:
            os.environ.clear()
            os.environ.update(environ)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def _stated(text: bytes) -> str | None:
    """The value of LGBENCH_CONTRACT in a plugin's source; None if it has none."""
    if b"LGBENCH_CONTRACT" not in text:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None  # importing it reports the error
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="LGBENCH_CONTRACT")], value=ast.expr() as value):
                return _literal(value)
            case ast.AnnAssign(target=ast.Name(id="LGBENCH_CONTRACT"), value=ast.expr() as value):
                return _literal(value)
    return None


def _literal(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)


def _distribution(entry_point: EntryPoint) -> Distribution:
    installed = entry_point.dist
    metadata = installed and installed.metadata  # every access parses the file anew
    if not (installed and metadata and "Version" in metadata):
        return Distribution("unknown", "unknown")  # an installer stopped halfway
    name, version = metadata["Name"], metadata["Version"]
    modules = tuple(sorted({each.module for each in installed.entry_points if each.group == GROUP}))
    try:
        direct = _direct_url(installed)
        url, editable = str(direct.get("url", "")), bool(direct.get("dir_info", {}).get("editable"))
        return Distribution(name, version, url, editable, _how(direct), _origin(direct), modules)
    except (ValueError, AttributeError):
        return Distribution(name, version, modules=modules)


def _direct_url(installed: InstalledDistribution) -> dict[str, Any]:
    """The place of a package that does not come from an index (PEP 610). Raises ValueError where nobody can read it."""
    direct = json.loads(installed.read_text("direct_url.json") or "{}")
    if not isinstance(direct, dict):
        raise ValueError("direct_url.json is no object")
    return direct


def _how(direct: dict[str, Any]) -> How:
    if not direct:
        return "index"
    if "vcs_info" in direct:
        return "version control"
    if "archive_info" in direct:
        return "wheel" if urlsplit(str(direct.get("url"))).path.endswith(".whl") else "archive"
    return "editable" if direct.get("dir_info", {}).get("editable") else "folder"


def _origin(direct: dict[str, Any]) -> str | None:
    """The URL of a package, with its commit; of a file on this machine its name alone. None for a folder."""
    if not ("vcs_info" in direct or "archive_info" in direct):
        return None
    url = urlsplit(str(direct.get("url")))
    port = f":{url.port}" if url.port else ""
    place = f"{url.scheme}://{url.hostname}{port}{url.path}" if url.hostname else PurePosixPath(url.path).name
    commit = direct.get("vcs_info", {}).get("commit_id")
    return f"{place}@{commit}" if commit else place


UNKNOWN = "unknown"
"""In place of the digits where the code has no files, or nobody recorded them."""

_imported: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""The digits of a package when they were first asked for, which is just after its import."""


def source_of(modules: Iterable[str]) -> str:
    """16 hexadecimal digits of the packages that imported modules are in: of the names and contents of all their .py files.

    A module that is in no package counts alone. Raises PluginError where files have changed since this process imported them,
    for nobody could say then which sources made a number.
    """
    packages = {name: files for module in modules for name, files in _package(module)}
    for name, files in packages.items():
        module = sys.modules.get(name)
        if isinstance(module, ModuleType) and _imported.setdefault(module, found := digest(files)) != found:
            raise PluginError(f"the sources of {name} have changed since this process imported them: start Python anew")
    return digest(file for files in packages.values() for file in files) if packages else UNKNOWN


def _package(module: str) -> Iterator[tuple[str, list[tuple[str, Path]]]]:
    """The outermost package of a module that has code of its own, and its files. A namespace belongs to many distributions."""
    for name in accumulate(module.split("."), "{}.{}".format):
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            return
        if spec is None:
            return
        if spec.origin and Path(spec.origin).is_file():
            folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
            inner = [(f"{name}/{p.relative_to(folder).as_posix()}", p) for folder in folders for p in folder.rglob("*.py")]
            yield name, inner or [(Path(spec.origin).name, Path(spec.origin))]
            return


KNOWN = {"lgbench", "torch"}
"""Libraries of every plugin, whose versions every run has anyway."""


@cache
def libraries_of(package: str) -> tuple[tuple[str, str], ...]:
    """Name and version of what an installed package requires, sorted, other than lgbench and torch; nothing of its extras.

    Nothing for a package that is not installed. A requirement that is missing is left out: the package works without it.
    """
    try:
        required = distribution(package).requires or []
    except (PackageNotFoundError, ValueError):  # ValueError for a name that is empty
        return ()
    names = sorted({name for text in required if (name := _name(text)) and name not in KNOWN})
    return tuple((name, version) for name in names if (version := _version(name)))


def _name(text: str) -> str | None:
    """The package that a requirement names, if it is one here; None for an extra's, and for what nobody can read."""
    try:
        requirement = Requirement(text)
        needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    return canonicalize_name(requirement.name) if needed else None


def _version(name: str) -> str | None:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None
