"""A new plugin as a package of its own: its names, whether they are free, and its files, from `templates/`."""

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
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench.contracts import CONTRACT, HARNESS_METRICS, NAME, PART_KINDS, RESERVED_NAMES
from lgbench.errors import LgbenchError, PluginError, UsageError

if TYPE_CHECKING:
    from jinja2 import Environment

    from lgbench.extensions.registry import Registry

TEMPLATES = Path(__file__).parent / "templates"
LICENSES = ("MIT", "Apache-2.0", "BSD-3-Clause")
NAMED_IN_ENTRIES = ("architecture", *PART_KINDS, "optimizer")
"""Kinds whose names stand side by side in an entry, so no two of them may have the same name."""

FILES = {
    "pyproject.toml": "shared/pyproject.toml",
    "README.md": "shared/README.md",
    "CHANGELOG.md": "shared/CHANGELOG.md",
    "LICENSE": "shared/LICENSE-{{ license }}",
    ".gitignore": "shared/gitignore",
    ".github/workflows/test-and-publish.yml": "shared/test-and-publish.yml",
    "{{ module }}/__init__.py": "{{ kind }}/plugin.py",
    "{{ module }}/py.typed": "shared/py.typed",
    "tests/test_{{ module }}.py": "{{ kind }}/test.py",
}
"""Every file of a package, and its template, which has the suffix .jinja."""


@dataclass(frozen=True)
class Example:
    """The method that the template of a kind implements."""

    what: str
    """The kind, in words."""
    about: str
    run: str
    """The arguments of `lgbench run` that try it. NAME stands for the plugin's name."""
    board: str = ""
    """The arguments of `lgbench leaderboard` that show it."""


EXAMPLES: Mapping[str, Example] = {
    "norm": Example("norm scheme", "x <- x + N(F(x)), as in OLMo 2", "--task dyck-2-3 --arch NAME"),
    "attention": Example(
        "attention", "softmax with a zero sink, exp(z) / (1 + sum of exp(z))", "--task set-complement --arch NAME"
    ),
    "position": Example(
        "position code", "KERPLE's bias, which falls with the logarithm of the distance", "--task dyck-2-3 --arch NAME"
    ),
    "architecture": Example(
        "architecture", "means of everything read so far in place of attention", "--task dyck-2-3 --arch NAME"
    ),
    "task": Example("task", "the most frequent of the tokens so far", "--task NAME --arch pre-norm,post-norm"),
    "averager": Example(
        "average of the weights", "polynomial-decay averaging", "--task dyck-2-3 --arch pre-norm --average NAME"
    ),
    "optimizer": Example(
        "optimizer", "Lion, the sign of an interpolated momentum", "--task dyck-2-3 --arch pre-norm --optimizer NAME"
    ),
    "measurement": Example(
        "measurement", "the KL divergence from p*, in nats", "--task dyck-2-3 --arch pre-norm,post-norm", "--metric NAME"
    ),
    "tracker": Example("tracker", "a file of JSON lines for each run", "--task dyck-2-3 --arch pre-norm --track NAME"),
}


@dataclass(frozen=True)
class Author:
    """The author in the package's metadata and license."""

    name: str = "YOUR NAME"
    email: str | None = None

    @property
    def known(self) -> bool:
        return self != Author()

    @property
    def table(self) -> str:
        """As an entry of `authors` in pyproject.toml."""
        fields = {"name": self.name} | ({"email": self.email} if self.email else {})
        # A JSON string is a TOML string too.
        return "{ " + ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()) + " }"


@dataclass(frozen=True)
class Package:
    """A package that provides one thing of one kind."""

    name: str
    """Of the thing, with hyphens between words, such as my-norm."""
    kind: str
    license: str = LICENSES[0]
    author: Author = Author()

    @classmethod
    def named(cls, written: str, kind: str, license: str = LICENSES[0], author: Author | None = None) -> Package:
        """From a name in any usual spelling: my-norm, my_norm, lgbench-my-norm. Raises UsageError."""
        name = written.replace("_", "-").removeprefix("lgbench-")
        if not (NAME.fullmatch(name) and name[0].isalpha()) or name == "lgbench":
            raise UsageError(
                f"{written!r} cannot be a plugin's name: use lower-case letters, digits and hyphens, a letter first, "
                "as in my-norm"
            )
        package = cls(name, kind, license, author or Author())
        if keyword.iskeyword(package.class_name) or package.class_name in _names_in(kind):
            raise UsageError(
                f"{name!r} would give a class {package.class_name}, and the example uses that name for something else: "
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
    def provides(self) -> str:
        """The name of the thing: that of a measurement has underscores."""
        return self.name.replace("-", "_") if self.kind == "measurement" else self.name

    @property
    def run(self) -> str:
        """The arguments of `lgbench run` that try it."""
        return EXAMPLES[self.kind].run.replace("NAME", self.provides)

    def files(self) -> dict[str, str]:
        """Every file by its path in the package."""
        example, jinja = EXAMPLES[self.kind], _jinja()
        words = {
            "name": self.provides,
            "kind": self.kind,
            "distribution": self.distribution,
            "module": self.module,
            "class_name": self.class_name,
            "what": example.what,
            "about": example.about,
            "run": self.run,
            "board": f" {example.board}".rstrip().replace("NAME", self.provides),
            "contract": ".".join(map(str, CONTRACT)),
            "license": self.license,
            "author": self.author.name,
            "author_table": self.author.table,
            "year": str(date.today().year),
        }

        def filled(text: str) -> str:
            return jinja.from_string(text).render(words)

        return {filled(path): jinja.get_template(f"{filled(template)}.jinja").render(words) for path, template in FILES.items()}


def require_free(package: Package, registry: Registry) -> None:
    """Raise UsageError, naming the owner, if something that is installed has one of the package's names."""
    name = package.provides
    if name in RESERVED_NAMES or (package.kind == "measurement" and name in HARNESS_METRICS):
        raise UsageError(f"{name!r} is a reserved name: choose another, such as my-{package.name}")
    for kind in NAMED_IN_ENTRIES if package.kind in NAMED_IN_ENTRIES else (package.kind,):
        catalog = registry.catalogs()[kind]
        try:
            taken = catalog.get(name) is not None
        except PluginError as error:
            raise UsageError(str(error)) from error
        if taken:
            owner = catalog.found(name).origin
            raise _taken(f"{kind} {name!r}", f"{owner.name} {owner.version}")
    if package.kind == "task":
        for task in registry.tasks:
            if task.family == name:
                raise _taken(f"family of tasks {name!r}", f"the plugin of {task.name}")
    for distribution in metadata.distributions(name=package.distribution):
        raise UsageError(
            f"{package.distribution} {distribution.version} is installed already: choose another name, or uninstall it with "
            f"`pip uninstall {package.distribution}`"
        )
    if spec := find_spec(package.module):
        raise UsageError(f"a module {package.module} exists already, {spec.origin}: choose another name")


def require_empty(folder: Path) -> None:
    """Raise UsageError unless the folder is new or empty: nothing is overwritten."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        is_what = "is not empty" if folder.is_dir() else "is a file"
        raise UsageError(f"{folder} {is_what}, and nothing is overwritten: name a new folder with --to")


def write(package: Package, folder: Path) -> None:
    """Write the package into `folder`, which is new or empty: all of it or, if that fails, nothing."""
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
            if place.exists():  # it may be a shell's working folder, so it is not replaced
                for path in written.iterdir():
                    path.rename(place / path.name)
            else:
                written.rename(place)
    except OSError as error:
        raise LgbenchError(f"{folder} was not written: {error.strerror or error}") from error


def author_by_git(folder: Path) -> Author:
    """The author as git knows it in `folder`; a placeholder where git does not know one."""
    name, email = (_git(folder, f"user.{field}") for field in ("name", "email"))
    # A build backend refuses a package with an address such as root@(none).
    is_address = re.fullmatch(r"[\w+-]+(\.[\w+-]+)*@[\w-]+(\.[\w-]+)*", email, re.ASCII)
    return Author(name, email if is_address else None) if name else Author()


def _git(folder: Path, setting: str) -> str:
    try:
        done = subprocess.run(["git", "config", setting], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    return done.stdout.strip()


@cache
def _jinja() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Plain text, not HTML: nothing is escaped.
    return Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True)


def _names_in(kind: str) -> set[str]:
    """Every name that the Python code of a kind's template uses."""
    text = re.sub(r"{{ \w+ }}", "filled", (TEMPLATES / kind / "plugin.py.jinja").read_text(encoding="utf-8"))
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _taken(what: str, owner: str) -> UsageError:
    return UsageError(f"{owner} provides the {what} already: choose another name")
