"""The types of options: names, seeds, lengths, changes, folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from lgbench.cli.output import Output
from lgbench.experiment.limits import MAX_SEEDS

if TYPE_CHECKING:
    from lgbench.results.leaderboard import Results

RESULTS = Path("results")
"""The results folder unless --results names another."""


class Names(click.ParamType):  # type: ignore[type-arg]  # generic in later releases of click only
    """A name, or several joined by commas, or an entry joined by plus signs. The shell completes what is installed."""

    name = "name"

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        last = re.split("[,+]", incomplete)[-1]
        before = incomplete[: len(incomplete) - len(last)]
        return [CompletionItem(before + name) for name in _installed_names(self.kinds) if name.startswith(last)]


class NameInResults(click.ParamType):  # type: ignore[type-arg]
    """A name that the runs of the results folder have. The shell completes it."""

    name = "name"

    def __init__(self, names: Callable[[Results], Iterable[str]]) -> None:
        self.names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from lgbench.errors import LgbenchError
        from lgbench.results.leaderboard import Results

        results = ctx.params.get("results") or RESULTS
        try:
            names = self.names(Results(results))
        except (LgbenchError, OSError):
            return []
        return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


class Seeds(click.ParamType):  # type: ignore[type-arg]
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
        if sum(found.stop - found.start for found in ranges) > MAX_SEEDS:
            self.fail(f"{value!r} names more than {MAX_SEEDS} seeds, the most that one command runs", param, ctx)
        return tuple(dict.fromkeys(chain.from_iterable(ranges)))


class Lengths(click.ParamType):  # type: ignore[type-arg]
    """`40,80` is 40 and 80."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isascii() and part.isdigit() for part in parts):
            self.fail(f"{value!r} names no lengths; use whole numbers joined by commas, such as 40,80,160", param, ctx)
        return tuple(dict.fromkeys(map(int, parts)))


class Doublings(Lengths):
    """`16:128` is 16, 32, 64 and 128; `40,80` is 40 and 80."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple) or ":" not in value:
            return super().convert(value, param, ctx)
        ends = [part.strip() for part in str(value).split(":")]
        if len(ends) == 2 and all(end.isascii() and end.isdigit() for end in ends):
            first, last = map(int, ends)
            if 1 <= first <= last:
                return doublings(first, last)
        self.fail(f"{value!r} names no lengths; use the first and the last of lengths that double, as in 16:4096", param, ctx)


class FiniteRange(click.FloatRange):
    """A finite number in a range. The range of click alone accepts nan and inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


class Change(click.ParamType):  # type: ignore[type-arg]
    """`key=value`."""

    name = "key=value"

    def __init__(self, example: str = "train.steps=500") -> None:
        self.example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not (key and equals and text):
            self.fail(f"{value!r} sets nothing; use key=value, as in {self.example}", param, ctx)
        return key.strip(), text.strip()


class Folder(click.Path):
    """Folder, or with `files` also a file."""

    def __init__(self, files: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=files)


def doublings(first: int, last: int) -> tuple[int, ...]:
    """From the first on, each length is twice the one before it, and none is greater than the last.

    >>> doublings(16, 100)
    (16, 32, 64)
    """
    return tuple(first << i for i in range((last // first).bit_length()))


def _range(text: str) -> range:
    """The seeds of `0:3`, or of `5`; an empty range for any other text."""
    first, colon, last = text.partition(":")
    try:
        return range(int(first), int(last) if colon else int(first) + 1)
    except ValueError:
        return range(0)


def _installed_names(kinds: Iterable[str]) -> list[str]:
    """Everything of these kinds that can be named: kind by kind, in alphabetical order."""
    from lgbench.extensions import describe
    from lgbench.extensions.registry import Registry

    output = Output()
    output.keep()
    try:
        registry, found = Registry.load(), list[str]()
    finally:
        output.give_back()  # for the names that click prints
    for kind in kinds:
        names = {*describe.probes(registry), "all"} if kind == "probes" else {n for n, _ in describe.summaries(kind, registry)}
        families = {"all", *(task.family for task in registry.tasks)} if kind == "tasks" else set()
        found += sorted(names | families)
    return found
