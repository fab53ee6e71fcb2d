"""Reverse, duplicate, find the missing symbol, odds first and bucket sort: strings of the Chomsky benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Facts, Random
from lgbench_algorithms.layouts import EmptyTokens
from lgbench_algorithms.regular import CHOMSKY

HIDDEN, PAD = 2, 3
BUCKETS = 5


@final
class ReverseString(EmptyTokens):
    """A random bit string, to be given in reverse order.

    >>> task = ReverseString()
    >>> inputs, distribution, weights = task.sample(3, Random(1, seed=2))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('0 1 1 _ _ _', [1, 1, 0])

    Source: arXiv 2207.02098.
    """

    name = family = "reverse-string"
    symbols = outputs = ("0", "1")
    facts = Facts("context-free", "deterministic context-free", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        bits = random.integers(2, length)
        return bits, bits.flip(1)

    def solve(self, question: str) -> Sequence[str]:
        return question.split()[::-1]


@final
class DuplicateString(EmptyTokens):
    """A random bit string, to be given twice.

    >>> task = DuplicateString()
    >>> inputs, distribution, weights = task.sample(3, Random(1, seed=2))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('0 1 1 _ _ _ _ _ _', [0, 1, 1, 0, 1, 1])

    Source: arXiv 2207.02098.
    """

    name = family = "duplicate-string"
    symbols = outputs = ("0", "1")
    facts = Facts("context-sensitive", "context-sensitive", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        bits = random.integers(2, length)
        return bits, torch.cat([bits, bits], 1)

    def solve(self, question: str) -> Sequence[str]:
        return question.split() * 2


@final
class MissingDuplicate(EmptyTokens):
    """A random bit string twice in a row, with one symbol hidden (?) and asked for. At an odd length a pad ends it.

    >>> task = MissingDuplicate()
    >>> inputs, distribution, _ = task.sample(7, Random(1))
    >>> task.text(inputs[0]), distribution[0, 0].argmax().item()
    ('1 0 ? 1 0 0 pad _', 0)

    Source: arXiv 2207.02098. The place of the hidden symbol is uniform over both copies.
    """

    name = family = "missing-duplicate"
    symbols = ("0", "1", "?", "pad")
    outputs = ("0", "1")
    question = r"([01] )*\?( [01])*( pad)?"
    where = Answers.LAST
    train_lengths = (2, 40)
    facts = Facts("context-sensitive", "context-sensitive", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        half = length // 2
        twice = random.integers(2, half).repeat(1, 2)
        place = random.integers(2 * half, 1)
        return F.pad(twice.scatter(1, place, HIDDEN), (0, length % 2), value=PAD), twice.gather(1, place)

    def solve(self, question: str) -> Sequence[str]:
        string = question.replace("pad", "").split()
        half, place = len(string) // 2, string.index("?")
        answer = string[place - half]  # an index below 0 counts from the end
        whole = [*string[:place], answer, *string[place + 1 :]]
        if whole != 2 * whole[:half]:
            raise ValueError("without pad, it is no string twice in a row")
        return answer


@final
class OddsFirst(EmptyTokens):
    """A random bit string t1 t2 t3 ..., to be given as t1 t3 ... t2 t4 ....

    >>> task = OddsFirst()
    >>> inputs, distribution, weights = task.sample(5, Random(1, seed=2))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('0 1 1 1 1 _ _ _ _ _', [0, 1, 1, 1, 1])

    Source: arXiv 2207.02098. This is the paper's rule; its code gives t2 t4 ... first.
    """

    name = family = "odds-first"
    symbols = outputs = ("0", "1")
    facts = Facts("context-sensitive", "context-sensitive", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        bits = random.integers(2, length)
        return bits, torch.cat([bits[:, ::2], bits[:, 1::2]], 1)

    def solve(self, question: str) -> Sequence[str]:
        bits = question.split()
        return [*bits[::2], *bits[1::2]]


@final
class BucketSort(EmptyTokens):
    """A random string over five symbols, to be given in order.

    >>> task = BucketSort()
    >>> inputs, distribution, weights = task.sample(5, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('3 1 2 0 1 _ _ _ _ _', [0, 1, 1, 2, 3])

    Source: arXiv 2207.02098.
    """

    name = family = "bucket-sort"
    symbols = outputs = tuple(map(str, range(BUCKETS)))
    facts = Facts("context-sensitive", "context-sensitive", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        string = random.integers(BUCKETS, length)
        return string, string.sort(1).values

    def solve(self, question: str) -> Sequence[str]:
        return sorted(question.split())
