"""Addition with a written answer: decimal in five formats, and binary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Batch, Facts, Random
from lgbench_algorithms.binary import bits_of, pairs
from lgbench_algorithms.copying import HUANG, RASP_L
from lgbench_algorithms.layouts import END, Written
from lgbench_algorithms.regular import CHOMSKY

BASE = 10
DIGITS = tuple(map(str, range(BASE)))
LONGEST = 200
HINTS = 256


def total(a: Tensor, b: Tensor) -> Tensor:
    """Sums of decimal numbers, highest digit first: (n, L), (n, L) -> (n, L + 1)."""
    sums = (a + b).flip(1)
    places = torch.arange(1, sums.shape[1] + 1, device=a.device)
    # A sum of 9 passes a carry on; the nearest other sum below it decides whether there is one.
    deciding = torch.where(sums == BASE - 1, 0, places).cummax(1).values
    carries = F.pad((sums >= BASE).long(), (1, 0)).gather(1, deciding)
    digits = (F.pad(sums, (0, 1)) + F.pad(carries, (1, 0))) % BASE
    return digits.flip(1)


class Decimal(Written):
    """Two random decimal numbers of L digits each, with a sum of L + 1 digits. High zeros are written."""

    symbols: Sequence[str] = (*DIGITS, "+")
    outputs: Sequence[str] = (*DIGITS, END)
    train_lengths = (1, 30)
    max_length = LONGEST
    question = r"\d( \d)* \+ \d( \d)*"
    facts = Facts("context-sensitive", "context-sensitive", sources=(RASP_L, CHOMSKY))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        a, b = random.integers(BASE, 2, length).unbind(1)
        first, second, answer = self.written(a, b, total(a, b), random)
        plus = torch.full_like(a[:, :1], self.symbols.index("+"))
        return torch.cat([first, plus, second], 1), self.ended(answer)

    @abstractmethod
    def written(self, a: Tensor, b: Tensor, sums: Tensor, random: Random) -> tuple[Tensor, Tensor, Tensor]:
        """Both numbers (n, L) and their sums (n, L + 1), highest digit first, in the format of the task."""

    def solve(self, question: str) -> Sequence[str]:
        a, b = "".join(word for word in question.split() if not word.startswith("h")).split("+")
        if len(a) != len(b):
            raise ValueError(f"the numbers have {len(a)} and {len(b)} digits, expected equally many")
        return [*self.spelled(f"{int(a) + int(b):0{len(a) + 1}}", question), END]

    @abstractmethod
    def spelled(self, digits: str, question: str) -> Sequence[str]:
        """Digits of a sum, highest first, in the format of the task."""


@final
class DecimalAddition(Decimal):
    """a + b of two random numbers with L digits each, highest digit first.

    >>> task = DecimalAddition()
    >>> inputs, distribution, weights = task.sample(3, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 6 3 4 + 0 2 1 = 0 6 5 5', [0, 6, 5, 5, 10])

    Source: arXiv 2310.16028 for the task. Independent digits, and lengths, are our choice.
    """

    name = family = "decimal-addition"

    def written(self, a: Tensor, b: Tensor, sums: Tensor, random: Random) -> tuple[Tensor, Tensor, Tensor]:
        return a, b, sums

    def spelled(self, digits: str, question: str) -> Sequence[str]:
        return digits


class ReversedAddition(Decimal):
    """a + b of two random numbers with L digits each; the sum has its lowest digit first.

    >>> task = ReversedAddition()
    >>> inputs, distribution, weights = task.sample(3, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 6 3 4 + 0 2 1 = 5 5 6 0', [5, 5, 6, 0, 10])

    Source: arXiv 2310.16028 for the task. To reverse the sum alone is our choice.
    """

    name = family = "decimal-addition-reversed"

    def written(self, a: Tensor, b: Tensor, sums: Tensor, random: Random) -> tuple[Tensor, Tensor, Tensor]:
        return a, b, sums.flip(1)

    def spelled(self, digits: str, question: str) -> Sequence[str]:
        return digits[::-1]


class HintedAddition(Decimal):
    """a + b of two random numbers with L digits each; before each digit, also of the sum, comes a hint of its significance.

    Hints fall to a random lowest one, so that every hint is seen in training:

    >>> task = HintedAddition()
    >>> inputs, distribution, weights = task.sample(2, Random(1))
    >>> task.text(inputs[0])
    'begin h108 6 h107 3 + h108 4 h107 0 = h109 1 h108 0 h107 3'

    Source: arXiv 2310.16028; that hints fall where the highest digit comes first is in its code. 256 hints are our choice.
    """

    name = family = "decimal-addition-hints"
    symbols = (*DIGITS, *(f"h{hint}" for hint in range(HINTS)), "+")
    outputs = (*DIGITS, *(f"h{hint}" for hint in range(HINTS)), END)
    question = r"h\d+ \d( h\d+ \d)* \+ h\d+ \d( h\d+ \d)*"

    def written(self, a: Tensor, b: Tensor, sums: Tensor, random: Random) -> tuple[Tensor, Tensor, Tensor]:
        digits = sums.shape[1]
        hints = BASE + random.integers(HINTS + 1 - digits, 1) + torch.arange(digits - 1, -1, -1, device=a.device)
        both = [torch.stack([hints[:, -number.shape[1] :], number], 2).flatten(1) for number in (a, b, sums)]
        return both[0], both[1], both[2]

    def spelled(self, digits: str, question: str) -> Sequence[str]:
        hints = [int(word[1:]) for word in question.split() if word.startswith("h")]
        highest = hints[0] + 1
        if hints != 2 * list(range(hints[0], highest - len(digits), -1)) or hints[0] + 1 >= HINTS:
            raise ValueError(f"expected hints that fall by one from digit to digit, from one below h{HINTS - 1}")
        return [word for place, digit in enumerate(digits) for word in (f"h{highest - place}", digit)]


@final
class HintedReversedAddition(HintedAddition):
    """As decimal-addition-hints, and the sum has its lowest digit first, so that its hints rise.

    >>> task = HintedReversedAddition()
    >>> inputs, distribution, weights = task.sample(2, Random(1))
    >>> task.text(inputs[0])
    'begin h108 6 h107 3 + h108 4 h107 0 = h107 3 h108 0 h109 1'

    Source: arXiv 2310.16028; that hints rise where the lowest digit comes first is in its code.
    """

    name = family = "decimal-addition-hints-reversed"

    def written(self, a: Tensor, b: Tensor, sums: Tensor, random: Random) -> tuple[Tensor, Tensor, Tensor]:
        first, second, answer = super().written(a, b, sums, random)
        return first, second, answer.view(len(answer), -1, 2).flip(1).flatten(1)

    def spelled(self, digits: str, question: str) -> Sequence[str]:
        words = super().spelled(digits, question)
        return [word for pair in reversed(list(zip(words[::2], words[1::2], strict=True))) for word in pair]


@final
class CoupledAddition(ReversedAddition):
    """As decimal-addition-reversed, with position ids: the lowest digit has the id 1, the next one 2; other tokens have 0.

    >>> task = CoupledAddition()
    >>> inputs, distribution, weights = task.sample(2, Random(1))
    >>> task.text(inputs[0]), inputs[0, :, 1].tolist()
    ('begin 6 3 + 4 0 = 3 0 1', [0, 2, 1, 0, 2, 1, 0, 1, 2, 3])

    Source: arXiv 2405.20671. Its random start of the ids in training is that of the position code `coupled`. Its numbers of
    digits are uniform and its numbers padded with zeros, where ours have independent digits, as in decimal-addition.
    """

    name = family = "decimal-addition-coupled"
    positions = LONGEST + 2
    facts = replace(Decimal.facts, sources=("arXiv 2405.20671", CHOMSKY))

    def sample(self, length: int, random: Random) -> Batch:
        """As for other tasks, with inputs (n, 3 L + 4, 2) of tokens and ids."""
        inputs, distribution, weights = super().sample(length, random)
        places = torch.arange(1, length + 2, device=inputs.device)
        falling = F.pad(places[:-1].flip(0), (1, 0))
        ids = torch.cat([falling, falling, F.pad(places, (1, 0))])
        return Batch(torch.stack([inputs, ids.expand_as(inputs)], -1), distribution, weights)


@final
class BinaryAdditionWritten(Written):
    """a + b of two random binary numbers, highest bit first. The length counts + and =.

    >>> task = BinaryAdditionWritten()
    >>> inputs, distribution, weights = task.sample(9, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('begin 1 1 0 1 1 + 1 1 = 1 1 1 1 0 begin begin', [1, 1, 1, 1, 0, 2])

    Source: arXiv 2410.02140 and its code. The length of the first number is uniform; a number of two or more bits begins
    with 1. The sum has no high zeros.
    """

    name = family = "binary-addition-written"
    symbols = ("0", "1", "+")
    outputs = ("0", "1", END)
    train_lengths = (4, 50)
    question = r"(0|1( [01])*) \+ (0|1( [01])*)"
    facts = Facts("context-sensitive", "context-sensitive", None, False, False, sources=(HUANG, CHOMSKY))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        places, width = torch.arange(length - 1, device=random.device), length - 2
        middle = 1 + random.integers(length - 3, 1)
        begins = ((places == 0) & (middle > 1)) | ((places == middle + 1) & (middle < width - 1))
        bits = (random.integers(2, length - 1) | begins) * (places != middle)
        sums = [a + b for a, b in pairs(bits.flip(1), length - 2 - middle)]
        sizes = torch.tensor([max(1, number.bit_length()) for number in sums], device=random.device)[:, None]
        left = sizes - 1 - torch.arange(width + 1, device=random.device)  # bits that follow; below 0 after the last
        answers = torch.where(left < 0, self.end, bits_of(sums, width, random.device).gather(1, left.clamp(min=0)))
        return torch.where(places == middle, 2, bits), answers

    def solve(self, question: str) -> Sequence[str]:
        a, b = question.replace(" ", "").split("+")
        return [*f"{int(a, 2) + int(b, 2):b}", END]
