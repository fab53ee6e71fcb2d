"""Directory of known plugin packages: which package has a name that is not installed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from lgbench.checkout import ROOT
from lgbench.errors import UsageError, unknown

DATA = Path(__file__).with_name("directory.toml")


def not_installed(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Error for a name of no installed plugin: with the package that has it, or else with the nearest known name."""
    for package, url in _packages(name):
        return UsageError(f"no {kind} {name!r} is installed; {name} is in {package}: {_installing(package, url)}")
    return unknown(kind, name, known)


def _packages(name: str) -> list[tuple[str, str]]:
    """Name and address of each listed package that provides a name."""
    listed = tomllib.loads(DATA.read_text(encoding="utf-8"))["plugin"]
    return [
        (package["name"], package["url"])
        for package in listed
        if any(name in names for names in package.values() if isinstance(names, list))
    ]


def _installing(package: str, url: str) -> str:
    """Command that installs a package. Those of this repository are installed from its checkout."""
    if not url.startswith("contrib/"):
        return f"pip install {package}"
    folder = ROOT / "plugins" / url
    if not folder.is_dir():
        return f"pip install ./plugins/{url}, in a checkout of lgbench"
    return f"pip install {f'./{folder.relative_to(Path.cwd())}' if folder.is_relative_to(Path.cwd()) else folder}"
