"""Whether a thing has what its contract declares: attributes of the right types, and methods that can be called as it says."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from types import EllipsisType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from lgbench.contracts import HARNESS_METRICS, METRIC_NAME, NAME, RESERVED_NAMES, Measurement
from lgbench.errors import PluginError
from lgbench.extensions.loading import outdated

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def require_declared(thing: Any, contract: type) -> None:
    """Raise PluginError, naming the attribute or method, if `thing` differs from what `contract` declares."""
    what = f"an object of {type(thing).__name__}"
    for attribute, hint in _hints(contract).items():
        expected = f"lgbench.{contract.__name__} declares {attribute}: {_written(contract, attribute)}"
        try:
            value = getattr(thing, attribute)
        except AttributeError:
            raise PluginError(f"{what} has no {attribute}; {expected}") from None
        if not _is(value, hint):
            raise PluginError(f"{what} has the {attribute} {value!r}; {expected}")
    for name, declared in _methods(contract):
        if getattr(type(thing), name, None) is not declared and not _can_be_called_as(getattr(thing, name), declared):
            own, expected = (_called(name, method) for method in (getattr(thing, name), declared))
            raise PluginError(f"{what} has the method {own}; lgbench.{contract.__name__} declares {expected}: {outdated()}")
    _require_name(thing.name, what, contract)  # which every contract declares


def _require_name(name: str, what: str, contract: type) -> None:
    measured = contract is Measurement
    pattern, separators, free = (METRIC_NAME, "underscores", "my_") if measured else (NAME, "hyphens", "my-")
    if not pattern.fullmatch(name):
        raise PluginError(f"{what} has the name {name!r}: use lower-case letters, digits and {separators}, at most 100")
    if name in RESERVED_NAMES or (measured and name in HARNESS_METRICS):
        raise PluginError(f"{what} has the name {name!r}, which is reserved: use another, such as {free}{name}")


def _is(value: object, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return any(_is(value, part) for part in parts)
    if kind is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if isinstance(parts[-1], EllipsisType) else parts
        return len(value) == len(kinds) and all(map(_is, value, kinds))
    if kind is frozenset:
        return isinstance(value, frozenset) and all(_is(item, parts[0]) for item in value)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(_is(k, parts[0]) and _is(v, parts[1]) for k, v in value.items())
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _written(contract: type, attribute: str) -> str:
    """The annotation as it is written in the contract, or in the class that the contract extends."""
    owner = next(each for each in contract.__mro__ if attribute in each.__dict__.get("__annotations__", {}))
    return str(owner.__annotations__[attribute])


@cache
def _hints(contract: type) -> Mapping[str, Any]:
    return get_type_hints(contract)


@cache
def _methods(contract: type) -> Sequence[tuple[str, Any]]:
    """The methods that a plugin may write itself."""
    return [(name, member) for name, member in inspect.getmembers(contract, inspect.isfunction) if not name.startswith("_")]


def _can_be_called_as(method: Any, declared: Any) -> bool:
    """Whether a bound method takes as many arguments by position as the contract's method."""
    if not callable(method):
        return False
    given = len([p for p in list(inspect.signature(declared).parameters.values())[1:] if p.kind in _BY_POSITION])
    parameters = inspect.signature(method).parameters.values()
    own = [p for p in parameters if p.kind in _BY_POSITION]
    required = [p for p in own if p.default is p.empty]
    return len(required) <= given and (given <= len(own) or any(p.kind is p.VAR_POSITIONAL for p in parameters))


def _called(name: str, method: Any) -> str:
    """A method with the names of its parameters, such as "residual(spec, sublayer)"."""
    parameters = [p for p in inspect.signature(method).parameters if p != "self"] if callable(method) else ["not a function"]
    return f"{name}({', '.join(parameters)})"
