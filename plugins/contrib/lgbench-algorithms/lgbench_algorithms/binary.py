"""Binary addition, binary multiplication and square root: arithmetic of the Chomsky benchmark, lowest bit first."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Facts, Random
from lgbench_algorithms.layouts import END, EmptyTokens
from lgbench_algorithms.regular import CHOMSKY

BITS = ("0", "1")


def integers(bits: Tensor) -> list[int]:
    """Python integers from bits (n, L), lowest first."""
    rows = np.packbits(bits.cpu().numpy().astype(np.uint8), axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def bits_of(numbers: Sequence[int], length: int, device: torch.device) -> Tensor:
    """Bits (n, length) of Python integers, lowest first."""
    width = -(-length // 8)
    rows = np.frombuffer(b"".join(number.to_bytes(width, "little") for number in numbers), np.uint8)
    bits = np.unpackbits(rows.reshape(len(numbers), width), axis=1, count=length, bitorder="little")
    return torch.from_numpy(bits.astype(np.int64)).to(device)


def positive(random: Random, length: int, wrong: Callable[[Tensor], Tensor]) -> Tensor:
    """Random bits (n, length), drawn anew in contexts in which a number is 0, as `wrong` says, (n,) bool."""
    tries = random.branch()
    bits = tries.integers(2, length)
    while (again := wrong(bits)).any():
        bits = torch.where(again[:, None], tries.integers(2, length), bits)
    return bits


def pairs(bits: Tensor, middle: Tensor) -> Iterator[tuple[int, int]]:
    """Numbers before and after the place `middle` (n, 1) of bits (n, L), lowest bit first."""
    places = torch.arange(bits.shape[1], device=bits.device)
    after = (places + middle + 1).clamp(max=bits.shape[1])  # beyond the end are zeros
    numbers = integers(torch.cat([bits * (places < middle), F.pad(bits, (0, 1)).gather(1, after)]))
    return zip(numbers[: len(bits)], numbers[len(bits) :], strict=True)


class BinaryOperation(EmptyTokens):
    """Two random positive binary numbers with an operator in between; the result is asked for, lowest bit first."""

    outputs = (*BITS, END)
    train_lengths = (3, 40)
    facts = Facts("context-sensitive", "context-sensitive", sources=(CHOMSKY,))
    longest = 0
    """Length of the longest answer with its end, minus the length of the question."""

    @staticmethod
    @abstractmethod
    def result(a: int, b: int) -> int:
        """Result of the operation."""

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        places = torch.arange(length, device=random.device)
        middle = 1 + random.integers(length - 2, 1)
        first, second = places < middle, places > middle
        bits = positive(random, length, lambda bits: ~((bits & first).any(1) & (bits & second).any(1)))
        results = [self.result(a, b) for a, b in pairs(bits, middle)]
        sizes = torch.tensor([number.bit_length() for number in results], device=random.device)[:, None]
        answers = bits_of(results, length + self.longest, random.device)
        ends = torch.arange(length + self.longest, device=random.device) >= sizes
        return torch.where(places == middle, 2, bits), torch.where(ends, 2, answers)

    def solve(self, question: str) -> Sequence[str]:
        a, b = (int(number[::-1], 2) for number in question.replace(" ", "").split(self.symbols[-1]))
        if not a * b:
            raise ValueError("a number is 0, expected positive ones")
        return [*reversed(f"{self.result(a, b):b}"), END]


@final
class BinaryAddition(BinaryOperation):
    """Two random binary numbers, lowest bit first, and their sum.

    >>> task = BinaryAddition()
    >>> inputs, distribution, weights = task.sample(8, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('1 0 0 0 0 + 1 1 _ _ _ _ _ _ _ _ _', [0, 0, 1, 2])

    Source: arXiv 2207.02098. Both numbers have at least one symbol, may end with zeros, and are not 0, as in the published
    code. The answer has no high zeros; it ends with an end symbol, after which nothing counts.
    """

    name = family = "binary-addition"
    symbols = (*BITS, "+")
    question = r"[01]( [01])* \+ [01]( [01])*"
    longest = 1

    @staticmethod
    def result(a: int, b: int) -> int:
        return a + b


@final
class BinaryMultiplication(BinaryOperation):
    """Two random binary numbers, lowest bit first, and their product.

    >>> task = BinaryMultiplication()
    >>> inputs, distribution, weights = task.sample(8, Random(1, seed=2))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('1 1 1 * 0 1 1 1 _ _ _ _ _ _ _ _', [0, 1, 0, 0, 0, 1, 1, 2])

    Source: arXiv 2207.02098, with numbers and end symbol as in binary addition.
    """

    name = family = "binary-multiplication"
    symbols = (*BITS, "*")
    question = r"[01]( [01])* \* [01]( [01])*"

    @staticmethod
    def result(a: int, b: int) -> int:
        return a * b


@final
class SquareRoot(EmptyTokens):
    """A random positive binary number of L bits, and the floor of its square root with L / 2 bits, rounded up.

    >>> task = SquareRoot()
    >>> inputs, distribution, weights = task.sample(6, Random(1, seed=2))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('1 1 1 1 0 1 _ _ _', [0, 1, 1])

    Source: arXiv 2207.02098. Lowest bit first, as in the paper; its code has the highest first. Zeros pad the answer.
    """

    name = family = "square-root"
    symbols = outputs = BITS
    facts = Facts("context-sensitive", "context-sensitive", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        bits = positive(random, length, lambda bits: ~bits.any(1))
        roots = [math.isqrt(number) for number in integers(bits)]
        return bits, bits_of(roots, (length + 1) // 2, random.device)

    def solve(self, question: str) -> Sequence[str]:
        bits = question.split()
        root = math.isqrt(int("".join(reversed(bits)), 2))
        if not root:
            raise ValueError("the number is 0, expected a positive one")
        return [*reversed(f"{root:0{(len(bits) + 1) // 2}b}")]
