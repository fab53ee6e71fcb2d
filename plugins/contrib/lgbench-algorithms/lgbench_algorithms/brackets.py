"""Modular arithmetic with brackets, and equations with one unknown: random expressions of one length, and their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Answers, Facts, Random
from lgbench_algorithms.layouts import EmptyTokens
from lgbench_algorithms.regular import CHOMSKY

MODULUS = 5
PLUS, MINUS, TIMES, OPEN, CLOSE, UNKNOWN, EQUALS = range(MODULUS, MODULUS + 7)
SHORTEST = 5
"""Length of the shortest expression with an operator between two others."""


def expressions(length: int, operators: int, random: Random) -> tuple[Tensor, Tensor]:
    """Random expressions (n, length) with their values modulo 5, (n, 1).

    Expressions of length 1 to 4 are d, -d, (d) and (-d). Longer ones are (left operator right), where the length of the left
    one, the operator among the first `operators` of + - *, and digits d are uniform.
    """
    n, device = random.n, random.device
    cuts = random.integers(2**31, length).flatten()  # an expression uses the numbers at its first place, which is its own
    kinds, digits = random.integers(operators, length).flatten(), random.integers(MODULUS, length).flatten()
    tokens, values = digits.clone(), digits.clone()
    start = torch.arange(n, device=device) * length
    size = torch.full_like(start, length)
    short, levels = [], []
    while len(start):
        ends = size < SHORTEST
        short.append((start[ends], size[ends]))
        start, size = start[~ends], size[~ends]
        left = 1 + (cuts[start] * (size - SHORTEST + 1) >> 31)
        right = start + left + 2
        levels.append((start, right))
        tokens[start], tokens[right - 1], tokens[start + size - 1] = OPEN, PLUS + kinds[start], CLOSE
        start, size = torch.cat([start + 1, right]), torch.cat([left, size - left - 3])
    start, size = (torch.cat(each) for each in zip(*short, strict=True))
    _write_short(tokens, values, start, size)
    for start, right in reversed(levels):
        a, b = values[start + 1], values[right]
        results = torch.stack([a + b, a - b, a * b])
        values[start] = results.gather(0, kinds[start][None])[0] % MODULUS
    return tokens.view(n, length), values.view(n, length)[:, :1]


def _write_short(tokens: Tensor, values: Tensor, start: Tensor, size: Tensor) -> None:
    """Write d, -d, (d) and (-d) of `size` 1 to 4 from `start` on, and their values at `start`."""
    digit = start + size // 2
    negative, bracketed = size % 2 == 0, size > 2
    values[start] = torch.where(negative, -tokens[digit], tokens[digit]) % MODULUS
    tokens[digit[negative] - 1] = MINUS
    start, size = start[bracketed], size[bracketed]
    tokens[start], tokens[start + size - 1] = OPEN, CLOSE


def value(expression: str) -> int:
    """Value modulo 5 by plain Python. Raises ValueError for an expression that :func:`expressions` does not have."""
    rest, shorter = "", re.sub(r"\( (- )?\d \)|((?<![\d)] )- )?\d", "e", expression)
    while shorter != rest:
        rest, shorter = shorter, re.sub(r"\( e [-+*] e \)", "e", shorter)
    if rest != "e":
        raise ValueError(
            "expected an expression d, - d, ( d ), ( - d ) or ( left operator right ), with blanks between symbols"
        )
    return int(eval(expression)) % MODULUS


@final
class ModularArithmeticBrackets(EmptyTokens):
    """The value modulo 5 of a random expression with digits 0 to 4, +, -, * and brackets.

    >>> task = ModularArithmeticBrackets()
    >>> inputs, distribution, _ = task.sample(12, Random(1))
    >>> task.text(inputs[0]), distribution[0, 0].argmax().item()
    ('( ( 2 * - 1 ) - ( 3 ) ) _', 0)

    Source: arXiv 2207.02098 for the task, its code for the distribution, which :func:`expressions` describes.
    """

    name = family = "modular-arithmetic-brackets"
    symbols = (*map(str, range(MODULUS)), "+", "-", "*", "(", ")")
    outputs = tuple(map(str, range(MODULUS)))
    where = Answers.LAST
    facts = Facts("context-free", "deterministic context-free", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        return expressions(length, 3, random)

    def solve(self, question: str) -> Sequence[str]:
        return str(value(question))


@final
class SolveEquation(EmptyTokens):
    """The digit x for which a random expression with digits 0 to 4, x, +, - and brackets has the given value modulo 5.

    >>> task = SolveEquation()
    >>> inputs, distribution, _ = task.sample(12, Random(1))
    >>> task.text(inputs[0]), distribution[0, 0].argmax().item()
    ('( ( 2 - 3 ) + - x ) = 0 _', 4)

    Source: arXiv 2207.02098. Its text allows products too, with which an equation such as 0 * x = 0 has five solutions; its
    code has none, and neither have these. x stands for the digit at a uniform place, or for the next one where there is none;
    after the last comes the first, as in the code.
    """

    name = family = "solve-equation"
    symbols = (*ModularArithmeticBrackets.symbols, "x", "=")
    outputs = tuple(map(str, range(MODULUS)))
    where = Answers.LAST
    train_lengths = (3, 40)
    question = r"[-+()0-4 ]*x[-+()0-4 ]* = [0-4]"
    facts = Facts("context-free", "deterministic context-free", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        left = length - 2
        tokens, values = expressions(left, 2, random)
        places = torch.arange(left, device=random.device)
        steps = (places - random.integers(left, 1)) % left  # from the drawn place, around the end
        place = torch.where(tokens < MODULUS, steps, left).argmin(1, keepdim=True)
        solution = tokens.gather(1, place)
        return torch.cat([tokens.scatter(1, place, UNKNOWN), torch.full_like(values, EQUALS), values], 1), solution

    def solve(self, question: str) -> Sequence[str]:
        left, _, right = question.partition(" = ")
        return "".join(x for x in self.outputs if value(left.replace("x", x)) == int(right))
