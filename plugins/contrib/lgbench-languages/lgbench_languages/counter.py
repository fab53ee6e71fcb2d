"""Blocks of equal lengths: a^n b^n, a^n b^n c^n and so on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_lowercase
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Budget, Facts, Random, Task
from lgbench_languages.members import WholeMembers, non_members


@final
class Counter(WholeMembers):
    """A context is a string of k blocks of n equal symbols, n from 1 up; the answers are uniform over what may follow.

    In the first block another a may follow, or the first b. Then n is known:

    >>> inputs, distribution, _ = Counter(2).sample(4, Random(1))
    >>> Counter(2).text(inputs[0]), distribution[0].tolist()
    ('aabb', [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])

    Source: Bhattamishra et al. 2020 (arXiv 2009.11264) with n from 1 to 50 in training. Uniform p* is our choice, and that the
    length is uniform, rounded down to a multiple of k: n = 50 is drawn 1/k times as often as another.
    """

    family = "counter"
    version = 1

    def __init__(self, blocks: int) -> None:
        super().__init__(tuple(ascii_lowercase[:blocks]))
        self.name, self.blocks = f"counter-{blocks}", blocks
        self.about = f"{' '.join(f'{letter}^n' for letter in self.symbols)}: {blocks} blocks of equal lengths"
        self.train_lengths = blocks, 50 * blocks
        if blocks > 2:  # protocols would test hardly any longer contexts
            self.budgets = {name: Budget(max_length=200 * blocks) for name in ("quick", "short", "standard", "long")}
        program = True if blocks == 2 else None
        chomsky = "deterministic context-free" if blocks == 2 else "context-sensitive"
        sources = ("arXiv 2009.11264", "arXiv 2410.02140, figure 3 and its repository")
        self.facts = Facts("counter", chomsky, None, program, program, sources=sources[: 2 if program else 1])

    def following(self, symbols: Tensor) -> Tensor:
        n, length = symbols.shape
        places = torch.arange(length + 1, device=symbols.device)
        legal = F.one_hot(self.blocks * places // length, self.blocks + 1).bool()  # the end is class k
        legal[1 : length // self.blocks + 1, :2] = True
        return legal.expand(n, -1, -1)

    def accepts(self, symbols: Tensor) -> Tensor:
        length = symbols.shape[1]
        if not self.has(length, True):
            return torch.zeros(len(symbols), dtype=torch.bool, device=symbols.device)
        return (symbols == self._member(length, symbols.device)).all(1)

    def has(self, length: int, member: bool) -> bool:
        return not member or (length > 0 and length % self.blocks == 0)

    def uniform(self, length: int, random: Random, member: bool) -> Tensor:
        if not member:
            return non_members(self, length, random)
        if not self.has(length, True):
            raise ValueError(f"there is no member of length {length}")
        return self._member(length, random.device).expand(random.n, -1)

    def reference(self, context: Tensor) -> Sequence[float]:
        prefix = "".join(self.symbols[token] for token in context[1:].tolist())
        members = ["".join(letter * n for letter in self.symbols) for n in range(1, len(prefix) + 2)]
        legal = [any(member.startswith(prefix + letter) for member in members) for letter in self.symbols]
        legal.append(prefix in members)
        return [allowed / max(1, sum(legal)) for allowed in legal]

    def sibling(self, name: str) -> Task | None:
        found = re.fullmatch(r"counter-(\d+)", name)
        if not found:
            return None
        if name != f"counter-{int(found[1])}" or not 2 <= int(found[1]) <= len(ascii_lowercase):
            raise ValueError(f"counter-K takes a number of blocks K from 2 to {len(ascii_lowercase)}, as in counter-4")
        return Counter(int(found[1]))

    def _member(self, length: int, device: torch.device) -> Tensor:
        return torch.arange(length, device=device) * self.blocks // length
