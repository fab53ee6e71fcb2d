"""Modular arithmetic without brackets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Answers, Facts, Random
from lgbench_algorithms.layouts import EmptyTokens
from lgbench_algorithms.regular import CHOMSKY

MODULUS = 5
MINUS, TIMES = MODULUS + 1, MODULUS + 2


@final
class ModularArithmetic(EmptyTokens):
    """The value modulo 5 of random digits 0 to 4 with random +, - and * in between, where products come first.

    >>> task = ModularArithmetic()
    >>> inputs, distribution, _ = task.sample(7, Random(1))
    >>> task.text(inputs[0]), distribution[0, 0].argmax().item()
    ('3 - 1 * 2 + 0 _', 1)

    Source: arXiv 2207.02098. An expression has an odd number of symbols. At an even length it has one more, as in the
    paper; the published code has one less.
    """

    name = family = "modular-arithmetic"
    symbols = (*map(str, range(MODULUS)), "+", "-", "*")
    outputs = tuple(map(str, range(MODULUS)))
    question = r"[0-4]( [-+*] [0-4])*"
    where = Answers.LAST
    facts = Facts("regular with groups", "regular", False, sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        operators = length // 2
        digits, kinds = random.integers(MODULUS, operators + 1), MODULUS + random.integers(3, operators)
        tokens = digits.new_empty(random.n, 2 * operators + 1)
        tokens[:, ::2], tokens[:, 1::2] = digits, kinds
        times, signs = (kinds == TIMES).T, torch.where(kinds == MINUS, -1, 1).T
        # Over the places: the sum of finished products, and the product that still goes on.
        total, product = torch.zeros_like(digits[:, 0]), digits[:, 0]
        for joined, signed in zip(times.contiguous(), signs * digits[:, 1:].T, strict=True):
            total = torch.where(joined, total, total + product)
            product = torch.where(joined, product * signed % MODULUS, signed)
        return tokens, ((total + product) % MODULUS)[:, None]

    def solve(self, question: str) -> Sequence[str]:
        return str(eval(question) % MODULUS)
