"""The libraries that a plugin's package stands on, and their versions: another version may give other numbers."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

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
