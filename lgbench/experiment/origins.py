"""Where the things of an experiment come from: the distributions and plugin files that decide its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lgbench.experiment.record import PluginUse
from lgbench.extensions.catalog import Found
from lgbench.extensions.loading import BUILT_IN, Distribution


def versions_of(*found: Found[Any]) -> dict[str, str]:
    """Name and version of the distributions that provide these things, and name and content of plugin files."""
    return {each.origin.name: each.origin.version for each in found}


def libraries_of(*found: Found[Any]) -> dict[str, str]:
    """Versions of the libraries that these distributions require."""
    return {f"{library} of {e.origin.name}": version for e in found for library, version in e.origin.libraries.items()}


def plugins_used(things: Iterable[tuple[str, Found[Any]]], loaded: Iterable[Distribution]) -> tuple[PluginUse, ...]:
    """The distributions that decide numbers: those of these things, which come with their kinds, and lgbench itself.

    lgbench is one of them only in a checkout with changes, for otherwise it has no digits. `loaded` is everything that was
    loaded.
    """
    kinds: dict[Distribution, set[str]] = {each: {"lgbench"} for each in loaded if each.name == BUILT_IN}
    for kind, each in things:
        kinds.setdefault(each.origin, set()).add(kind)
    used = [PluginUse(each.name, each.version, each.source, tuple(sorted(own))) for each, own in kinds.items() if each.source]
    return tuple(sorted(used, key=lambda plugin: plugin.name))
