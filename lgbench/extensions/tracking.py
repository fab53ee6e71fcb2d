"""The trackers that a user names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lgbench.errors import UsageError, first_line

if TYPE_CHECKING:
    from lgbench.extensions.registry import Registry


def usable(names: Iterable[str], registry: Registry) -> tuple[str, ...]:
    """The names of these trackers, each once. Raises UsageError for one that is unknown, or that cannot be used here."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        tracker = registry.trackers[name]
        try:
            why = tracker.missing()
        except Exception as error:  # a plugin's code may raise anything
            why = f"{name} cannot be used, since it raised {type(error).__name__}: {first_line(error)}"
        if why:
            raise UsageError(why)
    return found
