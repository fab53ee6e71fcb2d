"""The conformance checks for a plugin's own tests.

    import my_norm
    import pytest
    from lgbench.testing import checks

    @pytest.mark.parametrize("check", checks(my_norm))
    def test_it_keeps_the_contract(check):
        check()

As a plugin of pytest, which is there wherever lgbench is installed, it does the same for a marked test:

    @pytest.mark.lgbench(my_norm)
    def test_it_keeps_the_contract(lgbench_check):
        lgbench_check()

A check that fails says in a sentence what was expected and what came. What is allowed and had better be known is a warning,
which fails nothing.
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
    """What is allowed and had better be known, such as a model that trains slowly because vmap cannot take it."""


def checks(*things: Any) -> list[Check]:
    """What each thing promises, or everything that a module's hooks provide: callables that raise where it is not kept.

    Architectures and parts that are needed beside it are taken from what is installed. Raises ValueError, with the reason,
    for a module whose hooks cannot be used.
    """
    from lgbench.conformance.collect import checks_of, checks_of_plugin
    from lgbench.loading import Distribution
    from lgbench.registry import Registry

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
    return [_telling(check) for check in found]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lgbench(*things): give `lgbench_check` what each thing, or a module's hooks, promise")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `lgbench_check` runs once for every check of what its marker names."""
    if "lgbench_check" in metafunc.fixturenames:
        things = [thing for marker in metafunc.definition.iter_markers("lgbench") for thing in marker.args]
        metafunc.parametrize("lgbench_check", checks(*things))


def _telling(check: Check) -> Check:
    """The check, whose note becomes a warning."""

    from lgbench.conformance.check import NotHere, not_checked

    def examine() -> Outcome:
        try:
            note = check.examine()
        except NotHere as reason:
            note = not_checked(reason)
        if note:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ConformanceNote)  # it fails nothing, also where warnings are errors
                warnings.warn(f"{check.thing}: {note}", ConformanceNote, stacklevel=3)
        return note

    return replace(check, examine=examine)
