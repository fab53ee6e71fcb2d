"""Majority, mode and parity of a string, with a written answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from string import ascii_letters, ascii_lowercase
from typing import final

import torch
from torch import Tensor

from lgbench import Facts, Random
from lgbench_algorithms.copying import HUANG, RASP_L
from lgbench_algorithms.layouts import END, Written

FEW = 5
"""Different letters in a string of the task mode, at most."""
CANDIDATES = 64
"""Symbols drawn at once in the search for a string with one mode, at least. Short strings seldom have one."""


def with_one_mode(kinds: int, length: int, random: Random) -> tuple[Tensor, Tensor]:
    """Random strings (n, length) over `kinds` symbols in which one symbol is more frequent than all others, and it (n, 1)."""
    tries, at_once = random.branch(), 1 + CANDIDATES // length
    strings = torch.zeros(random.n, length, dtype=torch.int64, device=random.device)
    modes, missing = strings[:, :1].clone(), torch.ones_like(strings[:, :1], dtype=torch.bool)
    while missing.any():
        drawn = tries.integers(kinds, at_once, length)
        counts = torch.zeros(random.n, at_once, kinds, device=random.device)
        most, best = counts.scatter_add_(2, drawn, torch.ones_like(drawn, dtype=counts.dtype)).topk(2, 2)
        has_one = most[..., 0] > most[..., 1]
        first = has_one.int().argmax(1, keepdim=True)
        found = missing & has_one.any(1, keepdim=True)
        strings = torch.where(found, drawn.take_along_dim(first[..., None], 1)[:, 0], strings)
        modes = torch.where(found, best[..., 0].gather(1, first), modes)
        missing = missing & ~found
    return strings, modes


def shuffled(ones: Tensor, length: int, random: Random) -> Tensor:
    """Bits (n, length, K) with a given number of ones (n, K) in random order."""
    order = random.uniform(length, ones.shape[1], dtype=torch.float64).argsort(1)
    return (order < ones[:, None]).long()


def untied(length: int, strings: int, random: Random) -> Tensor:
    """Uniform numbers of ones in bit strings, other than half of the length: (n, strings)."""
    ones = random.integers(length + length % 2, strings)
    return ones + (ones >= length / 2) if length % 2 == 0 else ones


def mode(symbols: Sequence[str]) -> str:
    """The most frequent symbol. Raises ValueError where there are several."""
    most = Counter(symbols).most_common(2)
    if len(most) == 2 and most[0][1] == most[1][1]:
        raise ValueError(f"{most[0][0]} and {most[1][0]} are equally frequent")
    return most[0][0]


class MajorityOfBits(Written):
    """Interleaved bit strings; the majority of each is asked for."""

    symbols = ("0", "1")
    outputs = (*symbols, END)
    strings: int

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        each = length // self.strings
        ones = untied(each, self.strings, random)
        return shuffled(ones, each, random).flatten(1), self.ended((2 * ones > each).long())

    def solve(self, question: str) -> Sequence[str]:
        bits = question.split()
        if len(bits) % self.strings:
            raise ValueError(f"{len(bits)} bits are no {self.strings} strings of one length")
        return [*(mode(bits[start :: self.strings]) for start in range(self.strings)), END]


@final
class BinaryMajority(MajorityOfBits):
    """The majority of a bit string. The number of ones is uniform, ties excluded.

    >>> task = BinaryMajority()
    >>> inputs, distribution, weights = task.sample(5, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 1 1 0 1 1 = 1', [1, 2])

    Source: arXiv 2410.02140 and its code.
    """

    name = family = "binary-majority"
    strings = 1
    facts = Facts("counter", "deterministic context-free", c_rasp=True, c_rasp_positions=True, sources=(HUANG,))


@final
class InterleavedMajority(MajorityOfBits):
    """The majorities of three interleaved bit strings: symbols 1, 4, 7, ..., symbols 2, 5, 8, ... and symbols 3, 6, 9, ....

    >>> task = InterleavedMajority()
    >>> inputs, distribution, weights = task.sample(9, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 1 1 0 0 0 1 1 0 0 = 1 0 0', [1, 0, 0, 2])

    Source: arXiv 2410.02140 and its code. A length that is no multiple of 3 is rounded down to one.
    """

    name = family = "interleaved-majority"
    version = 2
    strings = 3
    train_lengths = (3, 50)
    facts = Facts("counter", c_rasp=False, c_rasp_positions=True, sources=(HUANG,))


@final
class Majority(Written):
    """The most frequent letter of a random string over 26 letters, which has one.

    >>> task = Majority()
    >>> inputs, distribution, weights = task.sample(5, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin z z d o k = z', [25, 26])

    Source: arXiv 2410.02140 and its code.
    """

    name = family = "majority"
    symbols = tuple(ascii_lowercase)
    outputs = (*symbols, END)
    facts = Facts("counter", c_rasp=True, c_rasp_positions=True, sources=(HUANG,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        string, mode = with_one_mode(len(self.symbols), length, random)
        return string, self.ended(mode)

    def solve(self, question: str) -> Sequence[str]:
        return [mode(question.split()), END]


@final
class Mode(Written):
    """The most frequent letter of a random string over five of 52 letters, which has one. Each string has its own five.

    >>> task = Mode()
    >>> inputs, distribution, weights = task.sample(6, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin o y J y J J = J', [35, 52])

    Source: arXiv 2310.16028 for the task. 52 letters, five of them at a time, are our choice: the mode of a string then has
    a larger lead than in the task majority.
    """

    name = family = "mode"
    symbols = tuple(ascii_letters)
    outputs = (*symbols, END)
    facts = Facts("counter", sources=(RASP_L,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        letters = random.permutations(len(self.symbols), FEW)
        string, mode = with_one_mode(FEW, length, random)
        return letters.gather(1, string), self.ended(letters.gather(1, mode))

    def solve(self, question: str) -> Sequence[str]:
        if len(set(question.split())) > FEW:
            raise ValueError(f"it has {len(set(question.split()))} different letters, expected at most {FEW}")
        return [mode(question.split()), END]


@final
class ParityUniformOnes(Written):
    """Whether a bit string has an even or an odd number of ones. The number of ones is uniform.

    >>> task = ParityUniformOnes()
    >>> inputs, distribution, weights = task.sample(5, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 1 1 0 1 1 = even', [0, 2])

    Source: arXiv 2410.02140 and its code. In parity-check bits are independent, and the answer is not written.
    """

    name = family = "parity-uniform-ones"
    symbols = ("even", "odd", "0", "1")
    outputs = ("even", "odd", END)
    question = "[01]( [01])*"
    facts = Facts("regular with groups", "regular", False, False, False, "Z_2", (HUANG, RASP_L))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        ones = random.integers(length + 1, 1)
        return 2 + shuffled(ones, length, random)[..., 0], self.ended(ones % 2)

    def solve(self, question: str) -> Sequence[str]:
        return ["odd" if question.count("1") % 2 else "even", END]
