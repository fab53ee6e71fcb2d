"""Shuffles of brackets: every type is well nested by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Batch, Facts, Random, Task
from lgbench_languages.members import non_members
from lgbench_tasks.language import SymbolLanguage

PAIRS = ("()", "[]", "{}", "<>", "aA", "bB", "cC", "dD", "eE", "fF")


@final
class Shuffle(SymbolLanguage):
    """A context is a prefix of brackets of k types, each well nested by itself; the answer is uniform over what may follow.

    Brackets of two types may cross, so k counters are enough. Next may come every opening bracket, the closing brackets of the
    types with an open one, and the end where none is open:

    >>> inputs, distribution, _ = Shuffle(2).sample(4, Random(1, seed=5))
    >>> Shuffle(2).text(inputs[0]), dict(zip(Shuffle(2).answers, distribution[0, -1].tolist()))
    ('([)[', {'(': 0.3333333432674408, '[': 0.3333333432674408, ')': 0.0, ']': 0.3333333432674408, 'end': 0.0})

    Source: the rule of Suzgun et al. 2019 (arXiv 1906.03648), Bhattamishra et al. 2020 (arXiv 2009.11264) and Huang et al. 2024
    (arXiv 2410.02140). The published generators nest the types in each other and never let them cross; this one follows the
    rule. Uniform p* and training on up to 50 symbols are our choice. Contexts are walks that have not ended.
    """

    family = "shuffle"
    version = 1
    train_lengths = (0, 50)

    def __init__(self, kinds: int) -> None:
        opens, closes = zip(*PAIRS[:kinds], strict=True)
        super().__init__((*opens, *closes))
        self.name, self.kinds = f"shuffle-{kinds}", kinds
        self.about = f"Shuffle of {kinds} Dyck languages, each of one type of brackets without a limit of depth"
        chomsky = "deterministic context-free" if kinds == 1 else "context-sensitive"
        program = True if kinds <= 2 else None
        sources = ("arXiv 2009.11264", "arXiv 2410.02140, figure 3 and its repository")
        self.facts = Facts("counter", chomsky, None, program, program, sources=sources[: 2 if program else 1])

    def sample(self, length: int, random: Random) -> Batch:
        """Walks that have not ended, (n, length + 1) with the begin token, with p* (n, length + 1, 2 k + 1)."""
        k, n = self.kinds, random.n
        # One position after the other in memory, as the loop goes.
        draws = random.uniform(length).T.contiguous()
        open_ = torch.zeros(k, n, dtype=torch.int64, device=random.device)
        closable = torch.empty(length + 1, k, n, dtype=torch.bool, device=random.device)
        symbols = torch.empty(length, n, dtype=torch.int64, device=random.device)
        for step, drawn in enumerate(draws):
            ranks = torch.gt(open_, 0, out=closable[step]).cumsum(0)
            choice = (drawn * (ranks[-1] + k)).long()  # the largest draw below 1 is not rounded up
            closed = (ranks <= choice - k).sum(0)  # the type in place choice - k among those with an open bracket
            opens = choice < k
            kind = torch.where(opens, choice, closed)
            open_.scatter_add_(0, kind[None], torch.where(opens, 1, -1)[None])
            torch.where(opens, kind, kind + k, out=symbols[step])
        torch.gt(open_, 0, out=closable[length])
        legal = torch.ones(length + 1, 2 * k + 1, n, device=random.device)
        legal[:, k : 2 * k] = closable
        legal[:, -1] = ~closable.any(1)
        p = legal / legal.sum(1, keepdim=True)
        return Batch(self.begin(symbols.T), p.permute(2, 0, 1))

    def reference(self, context: Tensor) -> Sequence[float]:
        read = "".join(self.symbols[token] for token in context[1:].tolist())
        pairs = list(zip(self.symbols[: self.kinds], self.symbols[self.kinds :], strict=True))
        for end in range(len(read) + 1):
            if any(read[:end].count(opens) < read[:end].count(closes) for opens, closes in pairs):
                return [0.0] * len(self.answers)
        closable = [read.count(opens) > read.count(closes) for opens, closes in pairs]
        legal = [True] * self.kinds + closable + [not any(closable)]
        return [allowed / sum(legal) for allowed in legal]

    def accepts(self, symbols: Tensor) -> Tensor:
        moves = F.one_hot(symbols, 2 * self.kinds)
        open_ = (moves[..., : self.kinds] - moves[..., self.kinds :]).cumsum(1)
        return (open_ >= 0).all((1, 2)) & (open_[:, -1:] == 0).all((1, 2))

    def has(self, length: int, member: bool) -> bool:
        return length % 2 == 0 if member else length > 0

    def uniform(self, length: int, random: Random, member: bool) -> Tensor:
        """Members by drawing how many brackets each type has, then which type comes next, then whether it opens or closes."""
        if not member:
            return non_members(self, length, random)
        if length % 2:
            raise ValueError(f"there is no member of length {length}")
        left = 2 * self._pairs(length // 2, random)
        places = random.integers(torch.arange(length, 0, -1, device=random.device), length).T.contiguous()
        draws = random.uniform(length, dtype=torch.float64).T.contiguous()
        open_, symbols = torch.zeros_like(left), torch.empty_like(places)
        for step, (place, drawn) in enumerate(zip(places, draws, strict=True)):
            kind = (left.cumsum(0) <= place).sum(0, keepdim=True)
            steps, height = left.gather(0, kind)[0], open_.gather(0, kind)[0]
            # Share of the paths from this height to the ground that begin with a step up: a quotient of ballot numbers.
            opens = drawn * (2 * steps * (height + 1)) < (steps - height) * (height + 2)
            left.scatter_add_(0, kind, torch.full_like(kind, -1))
            open_.scatter_add_(0, kind, torch.where(opens, 1, -1)[None])
            torch.where(opens, kind[0], kind[0] + self.kinds, out=symbols[step])
        return symbols.T

    def _pairs(self, pairs: int, random: Random) -> Tensor:
        """Pairs of each type in members with so many pairs, (k, n)."""
        left = torch.full((random.n,), pairs, device=random.device)
        found = []
        for chances in shares(self.kinds, pairs):
            found.append(random.categorical(chances.to(random.device)[left]))
            left = left - found[-1]
        return torch.stack([*found, left])

    def sibling(self, name: str) -> Task | None:
        found = re.fullmatch(r"shuffle-(\d+)", name)
        if not found:
            return None
        if name != f"shuffle-{int(found[1])}" or not 1 <= int(found[1]) <= len(PAIRS):
            raise ValueError(f"shuffle-K takes a number of bracket types K from 1 to {len(PAIRS)}, as in shuffle-3")
        return Shuffle(int(found[1]))


@lru_cache(maxsize=64)
def shares(kinds: int, pairs: int) -> tuple[Tensor, ...]:
    """For each type but the last, by the number m of pairs that it and those after it have: P(j pairs are its own), (m, j).

    There are Catalan(j) strings of one type, and binomial(2 m, 2 j) ways to put them among the others.
    """
    numbers = torch.arange(pairs + 1, dtype=torch.float64)
    factorials = torch.lgamma(2 * numbers + 1)
    catalan = factorials - 2 * torch.lgamma(numbers + 1) - torch.log(numbers + 1)
    m, j = torch.meshgrid(torch.arange(pairs + 1), torch.arange(pairs + 1), indexing="ij")
    others = (m - j).clamp(min=0)
    found, strings = [], catalan  # strings of the last type alone, then of the last two, and so on, as logarithms
    for _ in range(kinds - 1):
        ways = factorials[m] - factorials[j] - factorials[others] + catalan[j] + strings[others]
        ways = ways.masked_fill(j > m, -torch.inf)
        strings = ways.logsumexp(1)
        found.append(ways.softmax(1))
    return tuple(reversed(found))
