"""Whether a thing has what its contract declares: the attributes, of the types that stand beside them there."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from lgbench.contracts import MEANT_OTHERWISE, NAME
from lgbench.errors import PluginError


def require_declared(thing: Any, contract: type) -> None:
    """Raise PluginError, naming the attribute, where `thing` lacks one, or has another kind of value or an impossible name."""
    what = f"an object of {type(thing).__name__}"
    for attribute, hint in get_type_hints(contract).items():
        expected = f"lgbench.{contract.__name__} declares {attribute}: {contract.__annotations__[attribute]}"
        try:
            value = getattr(thing, attribute)
        except AttributeError:
            raise PluginError(f"{what} has no {attribute}; {expected}") from None
        if not _is(value, hint):
            raise PluginError(f"{what} has the {attribute} {value!r}; {expected}")
    name: str = thing.name  # which every contract declares
    if not NAME.fullmatch(name):
        raise PluginError(f"{what} has the name {name!r}: use lower-case letters, digits and hyphens, at most 100")
    if name in MEANT_OTHERWISE:
        raise PluginError(
            f"{what} has the name {name!r}, which means something else to lgbench: use another, such as my-{name}"
        )


def _is(value: object, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return any(_is(value, part) for part in parts)
    if kind is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_is, value, parts))
    if kind is Mapping:
        return isinstance(value, Mapping) and all(_is(k, parts[0]) and _is(v, parts[1]) for k, v in value.items())
    return isinstance(value, hint)
