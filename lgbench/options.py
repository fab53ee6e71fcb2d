"""What the command line's options take: names, seeds, changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import click
from click.shell_completion import CompletionItem

MOST_SEEDS = 10_000


class Names(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A name, or several with commas between, or an entry's with plus signs; what is installed completes it."""

    name = "name"

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        last = re.split("[,+]", incomplete)[-1]
        before = incomplete[: len(incomplete) - len(last)]
        names = (name for kind in self.kinds for name in _names(kind))
        return [CompletionItem(before + name) for name in names if name.startswith(last)]


class Seeds(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """`0:3` is 0, 1, 2; `0,7` is 0 and 7; `5` is 5 alone."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        ranges = [_range(part) for part in parts]
        for part, found in zip(parts, ranges, strict=True):
            if not found or found.start < 0 or found.stop > 2**63:
                self.fail(f"{part!r} names no seeds; use a range such as 0:3, or whole numbers from 0 such as 0,5", param, ctx)
        if sum(found.stop - found.start for found in ranges) > MOST_SEEDS:
            self.fail(f"{value!r} names more than {MOST_SEEDS} seeds, which one command does not take", param, ctx)
        return tuple(dict.fromkeys(chain.from_iterable(ranges)))


class Change(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """`key=value`."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not (key and equals and text):
            self.fail(f"{value!r} sets nothing; use key=value, as in train.steps=500", param, ctx)
        return key.strip(), text.strip()


def split(values: Sequence[str]) -> list[str]:
    """The names in the values of a repeated option, each of which may hold several with commas between."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def joined(changes: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The values of each key, with commas between, since an option that is repeated means all of its values.

    >>> joined([("train.lr", "1e-3"), ("train.steps", "500"), ("train.lr", "3e-3")])
    {'train.lr': '1e-3,3e-3', 'train.steps': '500'}
    """
    found: dict[str, str] = {}
    for key, text in changes:
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


def _range(text: str) -> range:
    """The seeds of `0:3`, or of `5`; none where it is neither."""
    first, colon, last = text.partition(":")
    try:
        return range(int(first), int(last) if colon else int(first) + 1)
    except ValueError:
        return range(0)


def _names(kind: str) -> list[str]:
    from lgbench import describe
    from lgbench.registry import Registry

    registry = Registry.load()
    names = {name for name, _ in describe.summaries(kind, registry)}
    families = {"all", *(task.family for task in registry.tasks)} if kind == "tasks" else set()
    return sorted(names | families)
