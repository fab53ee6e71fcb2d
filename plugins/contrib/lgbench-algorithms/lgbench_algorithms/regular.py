"""Even pairs, parity check and cycle navigation: regular tasks of the Chomsky benchmark with one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Tensor

from lgbench import Answers, Facts, Random
from lgbench_algorithms.layouts import EmptyTokens

CHOMSKY = "arXiv 2207.02098"
CYCLE = 5


@final
class EvenPairs(EmptyTokens):
    """Whether the number of unequal neighbours in a random bit string is even (class 0) or odd (class 1).

    The number of pairs 01 and 10 is even exactly if the first symbol is the last:

    >>> task = EvenPairs()
    >>> inputs, distribution, _ = task.sample(5, Random(1))
    >>> task.text(inputs[0]), distribution[0, 0].tolist()
    ('1 0 0 0 0 _', [0.0, 1.0])

    Source: arXiv 2207.02098. Star-free: the first and the last symbol decide.
    """

    name = family = "even-pairs"
    symbols = outputs = ("0", "1")
    where = Answers.LAST
    facts = Facts("star-free", "regular", True, sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        bits = random.integers(2, length)
        return bits, bits[:, :1] ^ bits[:, -1:]

    def solve(self, question: str) -> Sequence[str]:
        bits = question.split()
        return str(sum(a != b for a, b in zip(bits, bits[1:], strict=False)) % 2)


@final
class ParityCheck(EmptyTokens):
    """The number of ones in a random bit string, modulo 2.

    >>> task = ParityCheck()
    >>> inputs, distribution, _ = task.sample(5, Random(1))
    >>> task.text(inputs[0]), distribution[0, 0].tolist()
    ('1 0 0 0 0 _', [0.0, 1.0])

    Source: arXiv 2207.02098. Of the language of even parity no program in C-RASP is known (arXiv 2410.02140).
    """

    name = family = "parity-check"
    symbols = outputs = ("0", "1")
    where = Answers.LAST
    facts = Facts(
        "regular with groups", "regular", False, False, False, "Z_2", (CHOMSKY, "arXiv 2410.02140 and its repository")
    )

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        bits = random.integers(2, length)
        return bits, bits.sum(1, keepdim=True) % 2

    def solve(self, question: str) -> Sequence[str]:
        return str(question.count("1") % 2)


@final
class CycleNavigation(EmptyTokens):
    """The place on a cycle of five after random steps of 0, +1 or -1 from place 0.

    >>> task = CycleNavigation()
    >>> inputs, distribution, _ = task.sample(5, Random(1, seed=1))
    >>> task.text(inputs[0]), distribution[0, 0].argmax().item()
    ('+1 +1 +1 stay stay _', 3)

    Source: arXiv 2207.02098.
    """

    name = family = "cycle-navigation"
    symbols = ("stay", "+1", "-1")
    outputs = tuple(map(str, range(CYCLE)))
    where = Answers.LAST
    facts = Facts("regular with groups", "regular", False, group="Z_5", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        steps = random.integers(3, length)
        forward = (steps == 1).sum(1, keepdim=True) - (steps == 2).sum(1, keepdim=True)
        return steps, forward % CYCLE

    def solve(self, question: str) -> Sequence[str]:
        place = 0
        for step in question.split():
            place = (place + {"stay": 0, "+1": 1, "-1": CYCLE - 1}[step]) % CYCLE
        return str(place)
