"""Languages whose contexts are whole members, because few prefixes go on at every length."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Random
from lgbench_tasks.language import SymbolLanguage


class WholeMembers(SymbolLanguage):
    """A context of length L is a member, uniform among those of the greatest length up to L.

    All of its prefixes answer, and so does its end. Positions after the end are filled with symbol 0 and do not count.
    """

    def __init__(self, symbols: tuple[str, ...]) -> None:
        super().__init__(symbols)
        self.signature = replace(self.signature, answers=Answers.MARKED)

    @abstractmethod
    def following(self, symbols: Tensor) -> Tensor:
        """Which classes may follow each prefix of a member: (n, L) -> (n, L + 1, V) bool."""

    def longest(self, length: int) -> int:
        """Greatest length of a member, up to `length`. Raises ValueError below the shortest member."""
        for found in range(length, -1, -1):
            if self.has(found, True):
                return found
        raise ValueError(f"{self.name} has no member of length {length} or shorter: give a longer length")

    def drawn(self, length: int, random: Random) -> Tensor:
        """Symbols of the contexts, (n, length)."""
        return self.uniform(length, random, True)

    def sample(self, length: int, random: Random) -> Batch:
        """Members with the begin token, filled up to (n, length + 1), with p* (n, length + 1, V)."""
        whole = self.longest(length)
        symbols = self.drawn(whole, random)
        legal = self.following(symbols).float()
        p = F.pad(legal / legal.sum(-1, keepdim=True), (0, 0, 0, length - whole))
        p[:, whole + 1 :, -1] = 1.0
        counts = torch.arange(length + 1, device=random.device) <= whole
        return Batch(self.begin(F.pad(symbols, (0, length - whole))), p, counts.float().expand(random.n, -1))


def non_members(language: SymbolLanguage, length: int, random: Random) -> Tensor:
    """Strings (n, length), uniform among the non-members, of a language in which few strings are members: drawn again."""
    if not language.has(length, False):
        raise ValueError(f"there is no non-member of length {length}")
    tries = random.branch()
    symbols = tries.integers(len(language.symbols), length)
    while (wrong := language.accepts(symbols)).any():
        symbols = torch.where(wrong[:, None], tries.integers(len(language.symbols), length), symbols)
    return symbols
