"""Checks of `lgbench check` for a plugin's own tests.

    import my_norm
    import pytest
    from lgbench.testing import checks

    @pytest.mark.parametrize("check", checks(my_norm))
    def test_it_passes_the_checks_of_lgbench(check):
        check()

pytest finds this module wherever lgbench is installed, so a marked test does the same:

    @pytest.mark.lgbench(my_norm)
    def test_it_passes_the_checks_of_lgbench(lgbench_check):
        lgbench_check()

The message of a failed check is a sentence with the expected and the actual behaviour. A note is only a warning.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from lgbench.conformance.check import Check, Outcome


class ConformanceNote(UserWarning):
    """Warning about an allowed but noteworthy behaviour, such as slow training of a model without vmap support."""


def checks(*things: Any) -> list[Check]:
    """Checks of each object, or of all objects from a module's hooks. Call a check to run it.

    Further architectures and parts come from the installed plugins. Raises ValueError, with the reason, for a module with
    unusable hooks.
    """
    from lgbench.conformance.collect import checks_of, checks_of_plugin
    from lgbench.extensions.loading import Distribution
    from lgbench.extensions.registry import Registry

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
    return [_warning(check) for check in found]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lgbench(*things): run the test with `lgbench_check` as each check of these things")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the fixture `lgbench_check` once for each check of the objects in its marker."""
    if "lgbench_check" in metafunc.fixturenames:
        things = [thing for marker in metafunc.definition.iter_markers("lgbench") for thing in marker.args]
        metafunc.parametrize("lgbench_check", checks(*things))


def _warning(check: Check) -> Check:
    """The check with its note as a warning."""

    from lgbench.conformance.check import NotChecked, not_checked

    def examine() -> Outcome:
        try:
            note = check.examine()
        except NotChecked as reason:
            note = not_checked(reason)
        if note:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ConformanceNote)  # also where warnings are errors
                warnings.warn(f"{check.thing}: {note}", ConformanceNote, stacklevel=3)
        return note

    return replace(check, examine=examine)
