"""New plugin as a package: its names, a check that the names are free, and its files from `templates/`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lgbench.contracts import CONTRACT, HARNESS_METRICS, NAME, PART_KINDS, RESERVED_NAMES
from lgbench.errors import UsageError

if TYPE_CHECKING:
    from lgbench.extensions.registry import Registry

TEMPLATES = Path(__file__).parent / "templates"
NAMED_IN_ENTRIES = ("architecture", *PART_KINDS, "optimizer")
"""Kinds whose names stand side by side in an entry. No two of them may share a name."""

FILES = {
    "pyproject.toml": "shared/pyproject.toml",
    "README.md": "shared/README.md",
    "CHANGELOG.md": "shared/CHANGELOG.md",
    "LICENSE": "shared/LICENSE",
    ".gitignore": "shared/gitignore",
    ".github/workflows/test-and-publish.yml": "shared/test-and-publish.yml",
    "{{ module }}/__init__.py": "{{ kind }}/plugin.py",
    "{{ module }}/py.typed": "shared/py.typed",
    "tests/test_{{ module }}.py": "{{ kind }}/test.py",
}
"""Files of a package, with their templates, which have the suffix .jinja."""


class Example(NamedTuple):
    """Worked example of a kind: a method of the literature."""

    what: str
    """Kind, in words."""
    about: str
    run: str
    """Arguments of `lgbench run` for a first try. NAME stands for the plugin's name."""
    board: str = ""
    """Arguments of `lgbench leaderboard` for the results."""


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
    "logger": Example("logger", "a file of JSON lines for each run", "--task dyck-2-3 --arch pre-norm --logger NAME"),
}


@dataclass(frozen=True)
class Package:
    """Package with one object of one kind."""

    name: str
    """Name of the object, with hyphens between words, such as my-norm."""
    kind: str

    @classmethod
    def named(cls, written: str, kind: str) -> Package:
        """Package from a name in any usual spelling: my-norm, my_norm, lgbench-my-norm. Raises UsageError for a bad name."""
        name = written.replace("_", "-").removeprefix("lgbench-")
        if not (NAME.fullmatch(name) and name[0].isalpha()) or name == "lgbench":  # a class begins with it
            raise UsageError(
                f"{written!r} cannot be a plugin's name: use lower-case letters, digits and hyphens, a letter first, "
                "as in my-norm"
            )
        return cls(name, kind)

    @property
    def distribution(self) -> str:
        return f"lgbench-{self.name}"

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def class_name(self) -> str:
        """Class of the object, such as MyNorm. It ends with the kind, since a class Tensor or True would hide something."""
        words = self.name.removesuffix(f"-{self.kind}").split("-")
        return "".join(word.capitalize() for word in (*words, self.kind))

    @property
    def provides(self) -> str:
        """Name of the object. The name of a measurement has underscores."""
        return self.name.replace("-", "_") if self.kind == "measurement" else self.name

    @property
    def run(self) -> str:
        """Arguments of `lgbench run` for a first try."""
        return EXAMPLES[self.kind].run.replace("NAME", self.provides)

    def files(self, author: str, email: str) -> dict[str, str]:
        """Texts of all files by path."""
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        # Plain text, not HTML: nothing is escaped.
        jinja = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True)
        example = EXAMPLES[self.kind]
        given = {"name": author, "email": email}
        fields = [f"{key} = {json.dumps(text, ensure_ascii=False)}" for key, text in given.items() if text]  # also TOML strings
        own = ("kind", "distribution", "module", "class_name", "run")
        words = {name: getattr(self, name) for name in own} | {
            "name": self.provides,
            "what": example.what,
            "about": example.about,
            "board": f" {example.board}".rstrip().replace("NAME", self.provides),
            "contract": ".".join(map(str, CONTRACT)),
            "author": author,
            "author_table": f"{{ {', '.join(fields)} }}",
            "year": str(date.today().year),
        }

        def filled(text: str) -> str:
            return jinja.from_string(text).render(words)

        return {filled(path): jinja.get_template(f"{filled(template)}.jinja").render(words) for path, template in FILES.items()}


def require_free(package: Package, registry: Registry) -> None:
    """Raise UsageError, with the owner, for a reserved name or the name of an installed object or module."""
    name = package.provides
    if name in RESERVED_NAMES or (package.kind == "measurement" and name in HARNESS_METRICS):
        raise UsageError(f"{name!r} is a reserved name: choose another, such as my-{package.name}")
    for kind in NAMED_IN_ENTRIES if package.kind in NAMED_IN_ENTRIES else (package.kind,):
        catalog = registry.catalogs()[kind]
        if catalog.get(name) is not None:
            owner = catalog.found(name).origin
            raise UsageError(f"{owner.name} {owner.version} provides the {kind} {name!r} already: choose another name")
    if package.kind == "task" and (members := [task.name for task in registry.tasks if task.family == name]):
        raise UsageError(f"the plugin of {members[0]} provides the family of tasks {name!r} already: choose another name")
    if spec := find_spec(package.module):
        raise UsageError(f"a module {package.module} exists already, {spec.origin}: choose another name, or uninstall it")


def require_empty(folder: Path) -> None:
    """Raise UsageError unless the folder is new or empty: nothing is overwritten."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        is_what = "is not empty" if folder.is_dir() else "is a file"
        raise UsageError(f"{folder} {is_what}, and nothing is overwritten: name a new folder with --out")


def write(texts: Mapping[str, str], folder: Path) -> None:
    """Write the files of a package into a new or empty folder."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def author_by_git() -> tuple[str, str]:
    """Name and e-mail address of the author in git's settings; empty where unknown."""
    name, email = (_git(f"user.{field}") for field in ("name", "email"))
    # A build backend refuses a package with an address such as root@(none).
    is_address = re.fullmatch(r"[\w+-]+(\.[\w+-]+)*@[\w-]+(\.[\w-]+)*", email, re.ASCII)
    return name, email if is_address else ""


def _git(setting: str) -> str:
    try:
        return subprocess.run(["git", "config", setting], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
