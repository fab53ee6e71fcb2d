"""A fingerprint of what everybody in this process shares: functions, classes, operators, settings, environment."""

from __future__ import annotations

import builtins
import functools
import gc
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from lgbench.errors import PluginError
from lgbench.process.settings import HARMLESS_VARIABLES, SETTINGS, decides_numbers

SHARED = {"builtins", "hashlib", "math", "numpy", "numpy.linalg", "torch", "torch._C", "torch._C._linalg", "torch._C._nn"}
SHARED |= {"torch._VF", "torch.autograd", "torch.fft", "torch.func", "torch.functional", "torch.linalg", "torch.nn"}
SHARED |= {"torch.random", "torch.special"}
"""Modules whose functions everybody's numbers depend on. So are those of lgbench and the modules of neural networks."""
_SHARED_PACKAGES = ("torch.nn.functional", "torch.nn.init", "torch.nn.modules.", "torch.nn.parameter")
_CLASSES = (torch.Tensor, torch.autograd.Function, torch.Generator)
_COMPILER = tuple(os.path.join(os.path.dirname(torch.__file__), name) for name in ("_compile.py", "_dynamo"))
_WRITTEN = {name: attrgetter(name) for name in ("__code__", "__defaults__")}
"""The attributes that decide the behaviour of a function, each with the function that reads it."""
_MISSING = object()


class CannotPutBack(PluginError):
    """A plugin changed something that stays changed until the process ends."""


class Change(NamedTuple):
    """Something that is not as it was."""

    what: str
    undo: Callable[[], object]
    harmful: bool = True
    """Whether another plugin's numbers can depend on it."""


class Place:
    """A module, class, object or dictionary whose names are watched."""

    __slots__ = ("callables_only", "holder", "names", "title")

    def __init__(self, title: str, holder: Any, callables_only: bool = False) -> None:
        self.title, self.holder = title, holder
        self.callables_only = callables_only
        """Whether names of other things may change, as the counters and caches of a module do."""
        self.names: Mapping[str, Any] = holder if isinstance(holder, dict) else vars(holder)

    def put(self, name: str, value: Any) -> None:
        if isinstance(self.holder, dict):
            self.holder[name] = value
        else:
            setattr(self.holder, name, value)

    def drop(self, name: str) -> None:
        if isinstance(self.holder, dict):
            self.holder.pop(name, None)
        else:
            delattr(self.holder, name)

    def hides(self, name: str, value: Any) -> bool:
        """Whether a name that is new here hides one that was found elsewhere before. Others harm nobody."""
        match self.holder:
            case dict():
                return True
            case ModuleType() if self.title == "torch._VF":
                return hasattr(self.holder.vf, name)
            case ModuleType():
                return hasattr(builtins, name) and not name.startswith("__")
            case type():
                written_by_python = name.startswith("__") and not callable(value)
                return not written_by_python and any(name in vars(owner) for owner in self.holder.__mro__[1:])
        inherited = getattr(type(self.holder), name, _MISSING)
        return inherited is not _MISSING and not isinstance(inherited, functools.cached_property)

    def changed(self, before: Mapping[str, Any]) -> Iterator[str]:
        """The names that mean something else than before."""
        now = dict(self.names)
        for name, value in before.items():
            other = now.get(name, _MISSING)
            may_change = self.callables_only and not callable(value)
            if other is not value and not may_change and not _is_for_the_compiler(other, value):
                yield name
        for name in now.keys() - before.keys():
            if self.hides(name, now[name]):
                yield name


class Fingerprint:
    """The shared state of this process, as it is when this object is made."""

    def __init__(self) -> None:
        self._places: list[tuple[Place, Mapping[str, Any]]] = []
        self._functions: list[FunctionType] = []
        self._written: tuple[list[Any], ...] = tuple([] for _ in _WRITTEN)
        self._known: set[str] = set()
        self._by_package: dict[str, list[str]] = defaultdict(list)
        self._packages = {"lgbench"}
        self._settings = [setting.read() for setting in SETTINGS]
        self._environment = dict(os.environ)
        self._kernels = set(torch.library._impls)
        self._watch(Place(f"torch.{owner.__name__}", owner) for owner in _CLASSES)
        self.extend()

    def extend(self, package: str | None = None, things: Iterable[object] = ()) -> None:
        """Watch the modules that were imported since too, those of a plugin's package, and the things that it provides."""
        new = self._imported()
        self._known.update(new)
        for name in new:
            self._by_package[name.partition(".")[0]].append(name)
        if package and package not in self._packages:
            self._packages.add(package)
            new = self._by_package[package]
        shared = sorted(name for name in new if self._is_shared(name))
        self._watch(place for name in shared if name in sys.modules for place in _places(name, sys.modules[name]))
        self._watch(Place(f"{type(thing).__name__} of {package}", thing) for thing in things if hasattr(thing, "__dict__"))

    def _imported(self) -> list[str]:
        """The modules that were not there when modules were last looked for."""
        return [] if len(self._known) == len(sys.modules) else [name for name in list(sys.modules) if name not in self._known]

    def imported_since(self, package: str) -> list[str]:
        """The modules of a package that were not there when modules were last looked for."""
        return [name for name in self._imported() if name.partition(".")[0] == package]

    def changes(self) -> list[Change]:
        """Everything that is not as it was."""
        return [*self._in_settings(), *self._in_places(), *self._in_functions(), *self._in_environment(), *self._in_kernels()]

    def _is_shared(self, name: str) -> bool:
        return name in SHARED or name.startswith(_SHARED_PACKAGES) or name.partition(".")[0] in self._packages

    def _watch(self, places: Iterable[Place]) -> None:
        # Many small objects would wake the garbage collector, which takes longer than all this: columns, not rows.
        found: list[FunctionType] = []
        for place in places:
            names = dict(place.names)
            self._places.append((place, names))
            found += [value for value in names.values() if type(value) is FunctionType]
        self._functions += found
        for column, read in zip(self._written, _WRITTEN.values(), strict=True):
            column += map(read, found)

    def _in_places(self) -> Iterator[Change]:
        for place, before in self._places:
            now = place.names
            if len(now) == len(before) and all(map(is_, now.values(), before.values())):
                continue
            for name in sorted(place.changed(before)):
                undo = partial(place.put, name, before[name]) if name in before else partial(place.drop, name)
                yield Change(f"{place.title}.{name}", undo)

    def _in_functions(self) -> Iterator[Change]:
        for (attribute, read), column in zip(_WRITTEN.items(), self._written, strict=True):
            if all(map(is_, map(read, self._functions), column)):
                continue
            for function, before in {f: b for f, b in zip(self._functions, column, strict=True) if read(f) is not b}.items():
                undo = partial(setattr, function, attribute, before)
                yield Change(f"{function.__module__}.{function.__qualname__}", undo)

    def _in_settings(self) -> Iterator[Change]:
        for setting, before in zip(SETTINGS, self._settings, strict=True):
            try:
                now = setting.read()
            except Exception:  # a mode that was left on may break it; the mode is put back first, and this is read again
                continue
            if now != before:
                values = f" (it was {before}, now {now})" if setting.harmful and type(now) is not bool else ""
                yield Change(f"{setting.title}{values}", partial(setting.write, before), setting.harmful)

    def _in_environment(self) -> Iterator[Change]:
        now = dict(os.environ)
        if now == self._environment:
            return
        for name in sorted(now.keys() | self._environment.keys()):
            before = self._environment.get(name)
            if now.get(name) != before and name not in HARMLESS_VARIABLES:
                undo = partial(os.environ.pop, name, None) if before is None else partial(os.environ.__setitem__, name, before)
                yield Change(f"the environment variable {name}", undo, decides_numbers(name))

    def _in_kernels(self) -> Iterator[Change]:
        now = torch.library._impls
        if len(now) == len(self._kernels):
            return
        own = {key for library in _torchs_own_libraries() for key in library._op_impls}
        for key in sorted(key for key in now - self._kernels - own if key.startswith("aten/") and not key.endswith("/Meta")):
            yield Change(f"torch's operator {key.removeprefix('aten/')}", partial(_remove_kernel, key))


def put_back(fingerprint: Fingerprint, changes: Iterable[Change]) -> None:
    """Undo changes. Raises CannotPutBack for one that stays."""
    for _ in range(3):  # a switch of torch's older interface moves those of the newer one
        for change in changes:
            change.undo()
        changes = fingerprint.changes()
    left = [change.what for change in fingerprint.changes() if change.harmful]
    if left:
        raise CannotPutBack(f"changes {named(left)}, which cannot be put back: start again without the plugin")


def named(whats: Iterable[str], most: int = 3) -> str:
    """The first of these in words, and how many more there are."""
    listed = list(whats)
    more = [f"{len(listed) - most} more"] if len(listed) > most else []
    *first, last = listed[:most] + more
    return f"{', '.join(first)} and {last}" if first else last


def _torchs_own_libraries() -> list[Any]:
    """The libraries of operators that torch makes where it is first used, for vmap and for decompositions."""
    found = [
        vars(module) for name, module in list(sys.modules.items()) if name.startswith("torch.") and hasattr(module, "__dict__")
    ]
    return [value for names in found for value in list(names.values()) if type(value) is torch.library.Library]


def _is_for_the_compiler(function: Any, before: Any) -> bool:
    """Whether torch's compiler has wrapped a function, as it does where it is imported and first used. That moves no number."""
    if not isinstance(function, FunctionType) or not function.__code__.co_filename.startswith(_COMPILER):
        return False
    cells = function.__closure__ or ()
    return any(cell.cell_contents is before for cell in cells) or getattr(function, "__wrapped__", None) is before


@functools.cache
def _places(name: str, module: ModuleType) -> tuple[Place, ...]:
    """A module, and the classes and constant dictionaries that it defines, if it has such as everybody uses."""
    strange = not (name in SHARED or name.startswith(("lgbench.", *_SHARED_PACKAGES)))  # of a plugin
    found = [Place(name, module, callables_only=strange)]
    if name in SHARED:
        return tuple(found)
    for each, value in vars(module).items():
        kind = type(value)
        if issubclass(kind, type):
            if value.__module__ == name:
                found.append(Place(f"{name}.{value.__qualname__}", value))
        elif issubclass(kind, dict) and not strange and not each.startswith("__"):
            found.append(Place(f"{name}.{each}", value))
    return tuple(found)


def _remove_kernel(key: str) -> None:
    """Take an operator's kernel out again. The library that brought it is only known to the plugin."""
    for library in [each for each in gc.get_objects() if type(each) is torch.library.Library]:
        if key in library._op_impls:
            library._destroy()  # type: ignore[no-untyped-call]
