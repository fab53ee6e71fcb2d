"""The sources of installed plugins, as a few digits that tell one version of the code from another."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from lgbench.checkout import digest
from lgbench.errors import PluginError

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
