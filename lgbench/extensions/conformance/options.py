"""Checks of the options that `--set KIND.OPTION=VALUE` reaches."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

from lgbench.contracts import Configurable
from lgbench.errors import Unsupported
from lgbench.experiment.settings import options_of
from lgbench.extensions.conformance.check import Checks, Outcome, expect

OptionValue = bool | int | float | str


def checks(thing: Configurable) -> Checks:
    return {"its options can be set": lambda: _can_be_set(thing)}


def require_reachable(function: Callable[..., Any], owner: str, method: str, given: int) -> dict[str, Any]:
    """The options of a method, with their defaults. Raises CheckFailed or UsageError if `--set` cannot reach one of them.

    `given` is how many parameters the harness fills by position.
    """
    defaults = options_of(function, owner)
    parameters = inspect.signature(function).parameters.values()
    by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][given:]
    names = ", ".join(by_position)
    expect(not by_position, f"`--set` cannot reach {names} of {method}: put a star before, as in {method}(..., *, {names})")
    return defaults


def others(value: OptionValue) -> list[OptionValue]:
    """Other values of an option, one of which it may accept. There is none for a text, whose meaning only the thing knows."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, 2 * value + 2, max(1, value // 2), 0]
        case float():
            return [value / 2, 2 * value + 0.1, (value + 1) / 2, 0.0, 1.0]
    return []


def _can_be_set(thing: Configurable) -> Outcome:
    defaults = require_reachable(thing.configured, thing.name, "configured", 0)
    before = repr(_content(thing))
    plain = thing.configured(**defaults)
    expect(_same(plain, thing), "`configured` with the defaults gives another thing than the plugin does")
    refused = []
    for option, default in defaults.items():
        found = _with_other_value(thing, option, default)
        expect(repr(_content(thing)) == before, f"`configured` changes the thing itself for {option}: return a new one")
        if found is None:
            refused.append(option)
            continue
        value, other = found
        expect(isinstance(other, type(thing)), f"`configured` with {option}={value!r} gives {other!r}")
        same_name = other.name == thing.name
        expect(same_name, f"`configured` with {option}={value!r} gives the name {other.name!r}, expected {thing.name!r}")
        expect(not _same(other, thing), f"the option {option} changes nothing: {value!r} gives the same as {default!r}")
    return f"no other value of {', '.join(refused)} was accepted" if refused else None


def _with_other_value(thing: Configurable, option: str, default: OptionValue) -> tuple[OptionValue, Any] | None:
    """The first other value that the thing accepts, and the result; None if it refuses all."""
    for value in others(default):
        if value == default:
            continue
        try:
            return value, thing.configured(**{option: value})
        except Unsupported as refusal:
            expect(bool(str(refusal).strip()), f"it refuses {option}={value!r} without a reason: say what would work")
    return None


def _content(thing: Any) -> Any:
    return thing if is_dataclass(thing) else vars(thing)


def _same(first: Any, second: Any) -> bool:
    """Whether two things are equal: by their own comparison, or by type and attributes."""
    return bool(first == second) or (type(first) is type(second) and repr(_content(first)) == repr(_content(second)))
