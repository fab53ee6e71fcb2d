"""Importing a plugin so that it can hurt nobody: what it was written for, how long it takes, what it prints."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

from lgbench.contracts import CONTRACT
from lgbench.errors import PluginError, UsageError

SLOW_SECONDS = 2.0
"""An import that takes longer is named: every command that needs plugins waits for it."""


@dataclass(frozen=True)
class Distribution:
    """Where a plugin comes from: an installed package, or a file that the user named."""

    name: str
    """The package's, or the file's."""
    version: str
    """The package's, or "sha256:" and the digits of the file's content."""
    url: str = field(default="", compare=False)
    """What it was installed from, or the file's path; nothing where that was a package index."""
    editable: bool = field(default=False, compare=False)

    @property
    def stamp(self) -> str:
        """The first digits of a file's content, by which results tell its versions apart; nothing for a package."""
        _, file, digits = self.version.partition("sha256:")
        return digits[:8] if file else ""


@dataclass(frozen=True)
class Source:
    """A plugin that has not been imported yet."""

    name: str
    distribution: Distribution
    read: Callable[[], bytes | None]
    """Its source, None where there is none to be read."""
    load: Callable[[], ModuleType]


def installed_source(entry_point: EntryPoint) -> Source:
    """The plugin behind an entry point."""

    def read() -> bytes | None:
        spec = importlib.util.find_spec(entry_point.module)
        return Path(spec.origin).read_bytes() if spec and spec.origin and spec.origin.endswith(".py") else None

    return Source(entry_point.name, _distribution(entry_point), read, entry_point.load)


def file_source(path: Path) -> Source:
    """The plugin that a file is. Raises UsageError where there is no file of that name, or it does not end in .py."""
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"no plugin file {str(path)!r}: name a Python file, as in --plugin ./my_norm.py")
    content = path.read_bytes()
    digits = hashlib.sha256(content).hexdigest()
    distribution = Distribution(path.name, f"sha256:{digits}", str(path))

    def load() -> ModuleType:
        # A name of its own for every content, so that it hides no module and another version of it is another module.
        name = f"lgbench_plugin_{path.stem}_{digits[:8]}"
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        try:
            # What was read above, and neither what the file holds by now nor what Python keeps of an earlier import.
            exec(compile(content, path, "exec"), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
        return module

    return Source(path.stem, distribution, lambda: content, load)


def check_contract(source: Source) -> None:
    """Raise PluginError where the plugin says that it is written for a contract that this lgbench does not keep.

    Its text says so, in a line such as LGBENCH_CONTRACT = "1.0", so nothing of it has to be imported for that.
    """
    text = source.read()
    stated = _stated(text) if text else None
    if stated is None:
        return
    major, dot, minor = stated.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise PluginError(f"has the LGBENCH_CONTRACT {stated!r}, expected a version such as '{CONTRACT[0]}.{CONTRACT[1]}'")
    if int(major) != CONTRACT[0] or int(minor) > CONTRACT[1]:
        later = (int(major), int(minor)) > CONTRACT
        remedy = "upgrade lgbench" if later else f"upgrade the plugin to a release for contract {CONTRACT[0]}"
        here = f"{CONTRACT[0]}.{CONTRACT[1]}"
        raise PluginError(f"is written for contract {stated} and was not imported, for this lgbench keeps {here}: {remedy}")


@contextlib.contextmanager
def watched(notes: list[str]) -> Iterator[None]:
    """Inside, strangers' code is run: what it prints is kept from the terminal, and noted as a sentence, as is a long time."""
    printed = io.StringIO()
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield
    finally:
        seconds = time.perf_counter() - started
        if seconds > SLOW_SECONDS:
            notes.append(
                f"takes {seconds:.1f} s to import, and every command that needs plugins waits for it: "
                "import what is slow inside the functions that use it"
            )
        if lines := printed.getvalue().strip().splitlines():
            notes.append(f"prints when it is imported, which would spoil what commands write, so it is not shown: {lines[0]!r}")


def _stated(text: bytes) -> str | None:
    """What the text says that the plugin is written for, None where it says nothing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None  # importing it says what is wrong
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
    if not (entry_point.dist and "Version" in entry_point.dist.metadata):
        return Distribution("unknown", "unknown")  # what an installer left half done
    # PEP 610: what was not installed from an index says from where.
    try:
        direct = json.loads(entry_point.dist.read_text("direct_url.json") or "{}")
        editable = bool(direct.get("dir_info", {}).get("editable"))
        return Distribution(entry_point.dist.name, entry_point.dist.version, str(direct.get("url", "")), editable)
    except (ValueError, AttributeError):
        return Distribution(entry_point.dist.name, entry_point.dist.version)
