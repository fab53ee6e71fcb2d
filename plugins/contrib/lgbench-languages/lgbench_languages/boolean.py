"""Boolean expressions in prefix form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Facts, Random, Task
from lgbench_languages.members import WholeMembers, non_members

OPERATORS = ("~", "+", ">")
"""Operators with one, two and three arguments."""


@final
class Boolean(WholeMembers):
    """A context is an expression of values and operators with up to k arguments; the answers are uniform over what may follow.

    Operators stand before their arguments. While an argument is missing, every symbol may follow; then the expression ends:

    >>> inputs, distribution, _ = Boolean(2).sample(4, Random(1, seed=2))
    >>> Boolean(2).text(inputs[0]), distribution[0, -2:].tolist()
    ('+0~1', [[0.25, 0.25, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])

    Source: Bhattamishra et al. 2020 (arXiv 2009.11264). Expressions that are uniform among those of a length, uniform p*, and
    training on up to 50 symbols are our choice. In the published grammar with k = 3 a symbol opens one argument on average, so
    the mean length of an expression is infinite, and half of the expressions are a single value.
    """

    family = "boolean"
    version = 1
    train_lengths = (1, 50)

    def __init__(self, arguments: int) -> None:
        super().__init__((*OPERATORS[:arguments], "0", "1"))
        self.name, self.arguments = f"boolean-{arguments}", arguments
        self.about = f"Boolean expressions in prefix form, of operators with up to {arguments} argument{'s' * (arguments > 1)}"
        # Of ~ alone the language is ~*(0|1).
        kind, chomsky = ("star-free", "regular") if arguments == 1 else ("counter", "deterministic context-free")
        self.facts = Facts(kind, chomsky, sources=("arXiv 2009.11264",))

    def missing(self, symbols: Tensor) -> Tensor:
        """Missing arguments before each symbol and after the last, (n, L) -> (n, L + 1)."""
        more = torch.where(symbols < self.arguments, symbols, -1)  # an operator takes one place and opens its arguments'
        return 1 + F.pad(more.cumsum(1), (1, 0))

    def following(self, symbols: Tensor) -> Tensor:
        goes_on = self.missing(symbols)[..., None] > 0
        return torch.cat([goes_on.expand(-1, -1, len(self.symbols)), ~goes_on], -1)

    def accepts(self, symbols: Tensor) -> Tensor:
        missing = self.missing(symbols)
        return (missing[:, :-1] > 0).all(1) & (missing[:, -1] == 0)

    def has(self, length: int, member: bool) -> bool:
        return not member or length > 0

    def uniform(self, length: int, random: Random, member: bool) -> Tensor:
        """Members by the cycle lemma: exactly one rotation of symbols with the right numbers of arguments is an expression."""
        if not member:
            return non_members(self, length, random)
        if not length:
            raise ValueError("there is no member of length 0")
        counts, sums = (table.to(random.device) for table in compositions(self.arguments, length))
        drawn = torch.searchsorted(sums, random.uniform(dtype=torch.float64) * sums[-1], right=True)
        places = torch.arange(length, device=random.device)
        arguments = (places >= counts[drawn].cumsum(1)[..., None]).sum(1)
        # A random order by sorting: the loop of random.permutations costs more where few contexts have the same length.
        order = random.uniform(length, dtype=torch.float64).argsort(dim=1, stable=True)
        arguments = arguments.gather(1, order)
        # The expression begins after the first place at which most arguments have been given.
        first = 1 + (arguments - 1).cumsum(1).argmin(1, keepdim=True)
        arguments = arguments.gather(1, (first + places) % length)
        values = self.arguments + random.integers(2, length)
        return torch.where(arguments > 0, arguments - 1, values)

    def reference(self, context: Tensor) -> Sequence[float]:
        """p* by reading an expression recursively, as its grammar has it."""
        symbols = iter(self.symbols[token] for token in context[1:].tolist())

        def goes_on() -> bool:
            """Whether the symbols end before the expression does."""
            symbol = next(symbols, None)
            arguments = OPERATORS.index(symbol) + 1 if symbol in OPERATORS else 0
            return symbol is None or any(goes_on() for _ in range(arguments))

        legal = [1.0] * len(self.symbols) + [0.0] if goes_on() else [0.0] * len(self.symbols) + [1.0]
        return [0.0] * len(self.answers) if next(symbols, None) else [allowed / sum(legal) for allowed in legal]

    def sibling(self, name: str) -> Task | None:
        found = re.fullmatch(r"boolean-(\d+)", name)
        if not found:
            return None
        if name != f"boolean-{int(found[1])}" or not 1 <= int(found[1]) <= len(OPERATORS):
            raise ValueError(f"boolean-K takes operators with up to K arguments, K from 1 to {len(OPERATORS)}, as in boolean-2")
        return Boolean(int(found[1]))


@lru_cache(maxsize=128)
def compositions(arguments: int, length: int) -> tuple[Tensor, Tensor]:
    """Numbers of symbols without arguments, with one and so on in expressions of a length, (C, k + 1); cumulative weights (C,).

    The weight of a row is its number of expressions over that of all rows: orders of its symbols, and two values for each place
    without arguments.
    """
    rows = torch.zeros(1, 0, dtype=torch.int64)
    for number in range(arguments, 1, -1):  # numbers of operators with k, k - 1, ..., 2 arguments
        of_this = torch.arange((length - 1) // number + 1)
        rows = torch.cat([of_this.repeat_interleave(len(rows))[:, None], rows.repeat(len(of_this), 1)], 1)
    each = torch.arange(2, arguments + 1)
    values = 1 + (rows * (each - 1)).sum(1)
    unary = length - values - rows.sum(1)
    counts = torch.cat([values[:, None], unary[:, None], rows], 1)[unary >= 0]
    ways = counts[:, 0] * torch.log(torch.tensor(2.0, dtype=torch.float64)) - torch.lgamma(counts.double() + 1).sum(1)
    return counts, ways.softmax(0).cumsum(0)
