"""p* of a language by brute force, from nothing but a rule of membership."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import product

import pytest
from torch import Tensor

from lgbench import Batch, Task

Rule = Callable[[str], bool]


def strings(symbols: Iterable[str], longest: int) -> list[str]:
    """All strings up to a length, the shortest first."""
    return ["".join(string) for length in range(longest + 1) for string in product(symbols, repeat=length)]


def next_symbols(task: Task, is_member: Rule, endings: Sequence[str], prefix: str) -> list[float]:
    """p* by trying all endings: uniform over the symbols on the way to a member, and the end of a member."""
    legal = [any(is_member(prefix + symbol + ending) for ending in endings) for symbol in task.answers[:-1]]
    legal.append(is_member(prefix))
    return [allowed / sum(legal) for allowed in legal]


def answered(task: Task, batch: Batch) -> Iterator[tuple[str, list[float]]]:
    """Each prefix in a batch with its p*, where it counts."""
    counts = batch.distribution.sum(-1) if batch.weights is None else batch.weights
    for row, answers, counted in zip(batch.inputs, batch.distribution.tolist(), counts.tolist(), strict=True):
        string = text(task, row)
        yield from ((string[:end], p) for end, p in enumerate(answers) if counted[end])


def text(task: Task, row: Tensor) -> str:
    """The symbols after the begin token, without blanks between them."""
    return "".join(task.answers[token] for token in row[1:].tolist())


def compare(task: Task, batch: Batch, is_member: Rule, endings: Sequence[str]) -> None:
    """Compare p* of every prefix in a batch with the brute force."""
    known = cache(lambda prefix: next_symbols(task, is_member, endings, prefix))
    found = {prefix: p for prefix, p in answered(task, batch)}
    assert found
    for prefix, p in found.items():
        assert p == pytest.approx(known(prefix)), prefix
