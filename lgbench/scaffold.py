"""A new plugin as a package of its own: what it is called, whether that is free, and its files, from `templates/`."""

from __future__ import annotations

import ast
import json
import keyword
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from lgbench.contracts import CONTRACT, MEANT_OTHERWISE, NAME, PART_KINDS
from lgbench.errors import LgbenchError, PluginError, UsageError

if TYPE_CHECKING:
    from lgbench.registry import Registry

LICENSES = ("MIT", "Apache-2.0", "BSD-3-Clause")
NAMED_IN_ENTRIES = ("architecture", *PART_KINDS)
"""Kinds whose names stand beside each other in an entry, so that a name tells which is meant."""

FILES = {
    "pyproject.toml": "shared/pyproject.toml",
    "README.md": "shared/README.md",
    "CHANGELOG.md": "shared/CHANGELOG.md",
    "LICENSE": "shared/LICENSE-$license",
    ".gitignore": "shared/gitignore",
    ".github/workflows/test-and-publish.yml": "shared/test-and-publish.yml",
    "$module/__init__.py": "$kind/plugin.py",
    "$module/py.typed": "shared/py.typed",
    "tests/test_$module.py": "$kind/test.py",
}
"""Every file of a package, and the template that it comes from, which has the suffix .template."""


@dataclass(frozen=True)
class Example:
    """What the template of a kind is an example of."""

    what: str
    """As a reader would say it."""
    about: str
    run: str
    """What `lgbench run` is given; NAME is the plugin's."""


EXAMPLES: Mapping[str, Example] = {
    "norm": Example("norm scheme", "x <- x + N(F(x)), as in OLMo 2", "--task dyck-2-3 --arch NAME"),
    "architecture": Example(
        "architecture", "means of all that came before in place of attention", "--task dyck-2-3 --arch NAME"
    ),
    "task": Example("task", "the most frequent of the tokens so far", "--task NAME --arch pre-norm,post-norm"),
    "averager": Example(
        "average of the weights", "polynomial-decay averaging", "--task dyck-2-3 --arch pre-norm --average NAME"
    ),
    "attention": Example(
        "attention", "softmax with a zero sink, exp(z) / (1 + sum of exp(z))", "--task set-complement --arch NAME"
    ),
    "position": Example(
        "position code", "KERPLE's bias, which falls with the logarithm of the distance", "--task dyck-2-3 --arch NAME"
    ),
}


@dataclass(frozen=True)
class Author:
    """Who stands in the package's metadata and license."""

    name: str = "YOUR NAME"
    email: str | None = None

    @property
    def known(self) -> bool:
        return self != Author()

    @property
    def table(self) -> str:
        """As an entry of `authors` in pyproject.toml."""
        fields = {"name": self.name} | ({"email": self.email} if self.email else {})
        # A string of JSON is one of TOML.
        return "{ " + ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()) + " }"


@dataclass(frozen=True)
class Package:
    """A package that provides one thing of one kind."""

    name: str
    """Of what it provides, such as my-norm."""
    kind: str
    license: str = LICENSES[0]
    author: Author = Author()

    @classmethod
    def named(cls, written: str, kind: str, license: str = LICENSES[0], author: Author | None = None) -> Package:
        """From a name in any way that people write it: my-norm, my_norm, lgbench-my-norm. Raises UsageError."""
        name = written.replace("_", "-").removeprefix("lgbench-")
        if not (NAME.fullmatch(name) and name[0].isalpha()) or name == "lgbench":
            raise UsageError(
                f"{written!r} cannot be a plugin's name: use lower-case letters, digits and hyphens, a letter first, "
                "as in my-norm"
            )
        package = cls(name, kind, license, author or Author())
        if keyword.iskeyword(package.class_name) or package.class_name in _names_in(f"{kind}/plugin.py"):
            raise UsageError(
                f"{name!r} would give a class {package.class_name}, which the example needs for something else: "
                f"use a longer name, such as my-{name}"
            )
        return package

    @property
    def distribution(self) -> str:
        return f"lgbench-{self.name}"

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def class_name(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("-"))

    @property
    def run(self) -> str:
        """What `lgbench run` is given to try it."""
        return EXAMPLES[self.kind].run.replace("NAME", self.name)

    def files(self) -> dict[str, str]:
        """Every file by its path in the package."""
        example = EXAMPLES[self.kind]
        words = {
            "name": self.name,
            "kind": self.kind,
            "distribution": self.distribution,
            "module": self.module,
            "class_name": self.class_name,
            "what": example.what,
            "about": example.about,
            "run": self.run,
            "contract": ".".join(map(str, CONTRACT)),
            "license": self.license,
            "author": self.author.name,
            "author_table": self.author.table,
            "year": str(date.today().year),
        }

        def filled(text: str) -> str:
            return Template(text).substitute(words)

        return {filled(path): filled(_template(filled(source))) for path, source in FILES.items()}


def require_free(package: Package, registry: Registry) -> None:
    """Raise UsageError, saying who has it, where something that is installed has one of the package's names."""
    if package.name in MEANT_OTHERWISE:
        raise UsageError(f"{package.name!r} means something else to lgbench: choose another name, such as my-{package.name}")
    for kind in NAMED_IN_ENTRIES if package.kind in NAMED_IN_ENTRIES else (package.kind,):
        try:
            owner = registry.catalogs()[kind].origin(package.name)
        except PluginError as error:
            raise UsageError(str(error)) from error
        if owner:
            raise _taken(f"{kind} {package.name!r}", f"{owner.name} {owner.version}")
    if package.kind == "task":
        for task in registry.tasks:
            if task.family == package.name:
                raise _taken(f"family of tasks {package.name!r}", f"{task.name}, among others,")
    for distribution in metadata.distributions(name=package.distribution):
        raise UsageError(
            f"{package.distribution} {distribution.version} is installed already: choose another name, or uninstall it with "
            f"`pip uninstall {package.distribution}`"
        )
    if spec := find_spec(package.module):
        raise UsageError(f"a module {package.module} is there already, {spec.origin}: choose another name")


def require_empty(folder: Path) -> None:
    """Raise UsageError where something is in the way: nothing is overwritten."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        is_what = "is not empty" if folder.is_dir() else "is a file"
        raise UsageError(f"{folder} {is_what}, and nothing is overwritten: name a new folder with --to")


def write(package: Package, folder: Path) -> None:
    """Write the package into `folder`, which is empty or not there: all of it, or nothing."""
    require_empty(folder)
    contents, place = package.files(), folder.resolve()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".lgbench-", dir=place.parent) as unfinished:
            written = Path(unfinished) / place.name
            for name, text in contents.items():
                path = written / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            if place.exists():  # and may be where a shell stands, so that it has to stay the same folder
                for path in written.iterdir():
                    path.rename(place / path.name)
            else:
                written.rename(place)
    except OSError as error:
        raise LgbenchError(f"{folder} was not written: {error.strerror or error}") from error


def author_by_git(folder: Path) -> Author:
    """Who git says is at work in `folder`; a name that is seen to be none where it does not say."""
    name, email = (_git(folder, f"user.{field}") for field in ("name", "email"))
    # A build backend refuses the whole package for the sake of an address such as root@(none).
    is_address = re.fullmatch(r"[\w+-]+(\.[\w+-]+)*@[\w-]+(\.[\w-]+)*", email, re.ASCII)
    return Author(name, email if is_address else None) if name else Author()


def _git(folder: Path, setting: str) -> str:
    try:
        done = subprocess.run(["git", "config", setting], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    return done.stdout.strip()


def _template(path: str) -> str:
    return resources.files("lgbench").joinpath("templates", f"{path}.template").read_text(encoding="utf-8")


def _names_in(path: str) -> set[str]:
    """Every name that the Python of a template uses."""
    nodes = ast.walk(ast.parse(_template(path).replace("$", "")))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _taken(what: str, owner: str) -> UsageError:
    return UsageError(f"{owner} provides the {what} already: choose another name")
