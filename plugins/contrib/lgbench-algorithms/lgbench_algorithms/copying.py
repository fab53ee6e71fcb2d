"""Copy, sort and count, with written answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Facts, Random
from lgbench_algorithms.layouts import END, Written

HUANG = "arXiv 2410.02140 and its repository"
RASP_L = "arXiv 2310.16028"
SYMBOLS, NUMBERS = 150, 200


def distinct(question: str) -> Sequence[str]:
    """Symbols of a question. Raises ValueError if one comes twice."""
    symbols = question.split()
    if twice := [symbol for symbol in symbols if symbols.count(symbol) > 1]:
        raise ValueError(f"{twice[0]} comes twice, expected different symbols")
    return symbols


@final
class CopyUnique(Written):
    """Random symbols out of 150, none of them twice, to be copied.

    >>> task = CopyUnique()
    >>> inputs, distribution, weights = task.sample(3, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 101 54 69 = 101 54 69', [101, 54, 69, 150])

    Source: arXiv 2310.16028; alphabet, lengths and layout of arXiv 2410.02140. Class 150 ends the copy.
    """

    name = family = "copy-unique"
    symbols = tuple(map(str, range(SYMBOLS)))
    outputs = (*symbols, END)
    facts = Facts("context-sensitive", c_rasp=False, c_rasp_positions=True, sources=(HUANG, RASP_L))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        string = random.permutations(SYMBOLS, length)
        return string, self.ended(string)

    def solve(self, question: str) -> Sequence[str]:
        return [*distinct(question), END]


@final
class CopyRepeat(Written):
    """A random string over a and b, to be copied.

    >>> task = CopyRepeat()
    >>> inputs, distribution, weights = task.sample(3, Random(1, seed=2))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin a b b = a b b', [0, 1, 1, 2])

    Source: arXiv 2310.16028; alphabet, lengths and layout of arXiv 2410.02140.
    """

    name = family = "copy-repeat"
    symbols = ("a", "b")
    outputs = (*symbols, END)
    facts = Facts("context-sensitive", "context-sensitive", c_rasp=False, c_rasp_positions=False, sources=(HUANG, RASP_L))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        string = random.integers(2, length)
        return string, self.ended(string)

    def solve(self, question: str) -> Sequence[str]:
        return [*question.split(), END]


@final
class Sort(Written):
    """Random numbers below 150, none of them twice, to be given in order.

    >>> task = Sort()
    >>> inputs, distribution, weights = task.sample(3, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 101 54 69 = 54 69 101', [54, 69, 101, 150])

    Source: arXiv 2310.16028; alphabet, lengths and layout of arXiv 2410.02140.
    """

    name = family = "sort"
    symbols = tuple(map(str, range(SYMBOLS)))
    outputs = (*symbols, END)
    facts = Facts("context-sensitive", c_rasp=True, c_rasp_positions=True, sources=(HUANG, RASP_L))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        numbers = random.permutations(SYMBOLS, length)
        return numbers, self.ended(numbers.sort(1).values)

    def solve(self, question: str) -> Sequence[str]:
        return [*sorted(distinct(question), key=int), END]


@final
class Count(Written):
    """Two numbers a and b below 200, between which all are to be counted: a, a + 1, ..., b.

    The length is that of the answer, b - a + 1:

    >>> task = Count()
    >>> inputs, distribution, weights = task.sample(3, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 133 135 = 133 134 135', [133, 134, 135, 200])

    Source: arXiv 2310.16028. 200 numbers, and a uniform first one, are our choice, as the lengths are those of the other tasks.
    """

    name = family = "count"
    symbols = tuple(map(str, range(NUMBERS)))
    outputs = (*symbols, END)
    question = r"\d+ \d+"
    facts = Facts("algorithmic", sources=(RASP_L,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        first = random.integers(NUMBERS - length + 1, 1)
        numbers = first + torch.arange(length, device=random.device)
        return torch.cat([first, numbers[:, -1:]], 1), self.ended(numbers)

    def solve(self, question: str) -> Sequence[str]:
        first, last = map(int, question.split())
        if not 0 <= last - first < (self.max_length or NUMBERS):
            raise ValueError(f"from {first} to {last} are no 1 to {self.max_length} numbers")
        return [*map(str, range(first, last + 1)), END]
