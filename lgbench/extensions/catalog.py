"""Catalog of objects of one kind from plugins, by name, and the check of each object against its contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from lgbench.contracts import HARNESS_METRICS, METRIC_NAME, NAME, RESERVED_NAMES, Measurement
from lgbench.errors import PluginError, UsageError
from lgbench.extensions.directory import not_installed
from lgbench.extensions.loading import Distribution
from lgbench.terminal import sentence

Item = TypeVar("Item")


@dataclass(frozen=True)
class Found(Generic[Item]):
    """Object from a plugin."""

    label: str
    """Name in results. For an object from a file, with the first digits of the file's hash: my-norm~1a2b3c4d."""
    thing: Item
    origin: Distribution


class Catalog(Generic[Item]):
    """Objects of one kind by name, each with its distribution. A name from two plugins is unusable."""

    def __init__(self, kind: str, contract: Any, sibling: Callable[[Item, str], Item | None] = lambda item, name: None) -> None:
        self.kind = kind
        self.contract = contract
        self._sibling: Callable[[Item, str], Item | None] = sibling
        self._items: dict[str, list[tuple[Item, Distribution]]] = {}

    def add(self, item: Item, distribution: Distribution) -> None:
        name: str = getattr(item, "name")  # noqa: B009  # every contract declares it
        self._items.setdefault(name, []).append((item, distribution))

    def __iter__(self) -> Iterator[Item]:
        return (self[name] for name in self.names())

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __getitem__(self, name: str) -> Item:
        """Object by name. Raises UsageError for an unknown name, PluginError for a name from two plugins."""
        item = self.get(name)
        if item is None:
            raise not_installed(self.kind, name, self.names())
        return item

    def get(self, name: str) -> Item | None:
        """Object by name; None for an unknown name. Raises PluginError as indexing does."""
        found = self._find(name)
        return found[0] if found else None

    def found(self, name: str) -> Found[Item]:
        """Object by name, with its label and origin. Raises the same errors as indexing.

        The label of an object from a file contains the start of the file's hash, so that results of two versions of the file
        never mix. A label is also a valid name.
        """
        thing, found = self[name], self._find(name)
        assert found
        plain, stamp = name.partition("~")[0], found[1].stamp
        return Found(f"{plain}~{stamp}" if stamp else plain, thing, found[1])

    def names(self) -> list[str]:
        """All usable names, sorted."""
        return sorted(name for name, found in self._items.items() if len(found) == 1)

    def clashes(self) -> list[str]:
        """One sentence for each name from more than one object."""
        several = [(name, found) for name, found in sorted(self._items.items()) if len(found) > 1]
        return [self._clash(name, [origin for _, origin in found]) for name, found in several]

    def _clash(self, name: str, origins: Sequence[Distribution]) -> str:
        if all(origin is origins[0] for origin in origins):
            owner = sentence(f"{origins[0].name} {origins[0].version}")
            return f"{owner} provides {len(origins)} objects named {name!r}, so none can be used: give each a name of its own"
        owners = sentence(" and ".join(f"{origin.name} {origin.version}" for origin in origins))
        labels = " or ".join(f"{name}~{origin.stamp}" for origin in origins if origin.stamp)
        return (
            f"{self.kind} {name!r} is provided by {owners}, so it cannot be used: "
            "uninstall one, or name the plugins to load in LGBENCH_PLUGINS"
        ) + (f", or use {labels} for that of the file" if labels else "")

    def _find(self, name: str) -> tuple[Item, Distribution] | None:
        plain, _, stamp = name.partition("~")
        found = self._items.get(plain, [])
        if stamp:
            found = [(item, origin) for item, origin in found if origin.stamp == stamp]
        if len(found) > 1:
            raise PluginError(self._clash(plain, [origin for _, origin in found]))
        return found[0] if found else self._unlisted(plain, stamp)

    def _unlisted(self, name: str, stamp: str) -> tuple[Item, Distribution] | None:
        """Unlisted object of a family, such as dyck-K-M. Only members of the name's family are asked.

        Of several families, the longest is the name's: dyck-of-mine-3 belongs to dyck-of-mine rather than dyck.
        """
        members = [each for found in self._items.values() for each in found if stamp in ("", each[1].stamp)]
        families = {family for item, _ in members if (family := self._family(item)) and name.startswith(f"{family}-")}
        family = max(families, key=len, default="")
        siblings: dict[Distribution, Item] = {}
        for item, origin in members if family else ():
            if self._family(item) == family and origin not in siblings:
                sibling = self._sibling_of(item, name, origin)
                siblings |= {} if sibling is None else {origin: sibling}
        if len(siblings) > 1:
            raise PluginError(self._clash(name, list(siblings)))
        return next(((sibling, origin) for origin, sibling in siblings.items()), None)

    def _sibling_of(self, item: Item, name: str, origin: Distribution) -> Item | None:
        """Answer of a family's member for a name. Raises UsageError for an impossible object, PluginError for a wrong one."""
        try:
            sibling = self._sibling(item, name)
        except ValueError as reason:
            raise UsageError(f"no {self.kind} {name!r}: {reason}") from reason
        except Exception:  # a plugin's code may raise anything, such as an IndexError for a name of another form
            return None
        if sibling is None:
            return None
        named = isinstance(sibling, self.contract) and (getattr(sibling, "name", ""), self._family(sibling))
        if named not in ((name, self._family(item)), (name, name)):
            asked = (
                f"{origin.name} {origin.version} was asked for the {self.kind} {name!r} of the family {self._family(item)!r}"
            )
            raise PluginError(f"{sentence(asked)} and gave {sentence(repr(sibling))}: give an object of that name, or None")
        require_declared(sibling, self.contract)
        return sibling

    @staticmethod
    def _family(item: Item) -> str:
        return str(getattr(item, "family", ""))


def require_declared(thing: Any, contract: type) -> None:
    """Raise PluginError, naming the attribute, if `thing` lacks something that `contract` declares, or has another type."""
    what = f"an object of {type(thing).__name__}"
    for attribute, hint in _hints(contract).items():
        expected = f"lgbench.{contract.__name__} declares {attribute}: {_written(contract, attribute)}"
        try:
            value = getattr(thing, attribute)
        except AttributeError:
            raise PluginError(f"{what} has no {attribute}; {expected}") from None
        if not _is(value, hint):
            raise PluginError(f"{what} has the {attribute} {value!r}; {expected}")
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
    if kind is Mapping:
        return isinstance(value, Mapping) and all(_is(k, parts[0]) and _is(v, parts[1]) for k, v in value.items())
    if kind in (tuple, frozenset):
        if not isinstance(value, kind):
            return False
        kinds = parts if kind is tuple and ... not in parts else parts[:1] * len(value)
        return len(value) == len(kinds) and all(map(_is, value, kinds))
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _written(contract: type, attribute: str) -> str:
    """Source text of an annotation in the contract or its base class."""
    owner = next(each for each in contract.__mro__ if attribute in each.__dict__.get("__annotations__", {}))
    return str(owner.__annotations__[attribute])


@cache
def _hints(contract: type) -> Mapping[str, Any]:
    return get_type_hints(contract)
