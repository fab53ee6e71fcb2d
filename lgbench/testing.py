"""Checks of `lgbench check` for a plugin's own tests.

    import my_norm
    import pytest
    from lgbench.testing import checks

    @pytest.mark.parametrize("check", checks(my_norm))
    def test_it_passes_the_checks_of_lgbench(check):
        check()

The message of a failed check is a sentence with the expected and the actual behaviour. A note is only a warning.
"""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

from lgbench.conformance.check import Check, Outcome
from lgbench.conformance.collect import checks_of, checks_of_plugin
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry


class ConformanceNote(UserWarning):
    """Warning about an allowed but noteworthy behaviour, such as slow training of a model without vmap support."""


class WarningCheck(Check):
    """Check with its note as a warning."""

    def __call__(self) -> Outcome:
        __tracebackhide__ = True
        note = super().__call__()
        if note:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ConformanceNote)  # also where warnings are errors
                warnings.warn(f"{self.thing}: {note}", ConformanceNote, stacklevel=2)
        return note


def checks(*things: Any) -> list[Check]:
    """Checks of each object, or of all objects from a module's hooks. Call a check to run it.

    Further architectures and parts come from the installed plugins. Raises ValueError, with the reason, for a module with
    unusable hooks.
    """
    registry = Registry.load()
    found: list[Check] = []
    for thing in things:
        if not isinstance(thing, ModuleType):
            found += checks_of(thing, registry)
            continue
        name = thing.__name__
        known = [plugin for plugin in registry.plugins if plugin.module is thing]
        plugin = known[0] if known else registry.add(thing, name, Distribution(name, "not installed"))
        if plugin.error:
            raise ValueError(f"{plugin.title}: {plugin.error}")
        found += checks_of_plugin(plugin, registry)
    return [WarningCheck(each.thing, each.name, each.examine) for each in found]
