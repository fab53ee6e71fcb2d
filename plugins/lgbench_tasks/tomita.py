"""The seven regular languages of Tomita."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import final

import torch
from torch import Tensor

from lgbench import Batch, Facts, Random, Task
from lgbench_tasks.automaton import Automaton, Table
from lgbench_tasks.language import SymbolLanguage

RULES = {
    1: ("1*", Automaton([[1, 0], [1, 1]], [True, False])),
    2: ("(10)*", Automaton([[2, 1], [0, 2], [2, 2]], [True, False, False])),
    3: (
        "no odd run of 1s immediately followed by an odd run of 0s",
        # 0: even run of 1s, or 0s after such a run; 1: odd run of 1s; 2, 3: odd and even run of 0s after it; 4: dead
        Automaton([[0, 1], [2, 0], [3, 4], [2, 1], [4, 4]], [True, True, False, True, False]),
    ),
    4: ("no 000", Automaton([[1, 0], [2, 0], [3, 0], [3, 3]], [True, True, True, False])),
    5: (
        "an even number of 0s and an even number of 1s",
        Automaton([[1, 2], [0, 3], [3, 0], [2, 1]], [True, False, False, False]),
    ),
    6: ("the number of 0s minus the number of 1s is divisible by 3", Automaton([[1, 2], [2, 0], [0, 1]], [True, False, False])),
    7: ("0*1*0*1*", Automaton([[0, 1], [2, 1], [2, 3], [4, 3], [4, 4]], [True, True, True, True, False])),
}

DEFINITIONS: Mapping[int, Callable[[str], bool]] = {
    1: lambda string: "0" not in string,
    2: lambda string: re.fullmatch("(10)*", string) is not None,
    3: lambda string: re.search("(?<!1)1(11)*0(00)*(?!0)", string) is None,
    4: lambda string: "000" not in string,
    5: lambda string: string.count("0") % 2 == string.count("1") % 2 == 0,
    6: lambda string: (string.count("0") - string.count("1")) % 3 == 0,
    7: lambda string: re.fullmatch("0*1*0*1*", string) is not None,
}
"""Membership by plain definition, without the automata from which contexts are sampled."""

HUANG = "arXiv 2410.02140, figure 3 and its repository"
STAR_FREE = {1: (True, True), 2: (True, True), 4: (False, True), 7: (True, True)}
"""C-RASP without and with absolute positions, of the star-free languages."""
GROUPS = {3: "Z_2", 5: "Z_2 x Z_2", 6: "Z_3"}
"""Groups in the syntactic monoids of the other languages, of which no program in C-RASP is published."""

_ENDINGS = ["".join(ending) for length in range(4) for ending in product("01", repeat=length)]
"""Strings of up to 3 symbols. A prefix of a member becomes a member with one of them, in all seven languages."""


@final
class Tomita(SymbolLanguage):
    """A context is a prefix that can still become a member; the answer is uniform over what may follow.

    Next may come each symbol from which a member can still be reached, and the end where the prefix is a member. In
    Tomita 2, (10)*, after 10 the string may end or go on with 1:

    >>> inputs, distribution, _ = Tomita(2).sample(2, Random(1))
    >>> Tomita(2).text(inputs[0]), dict(zip(Tomita(2).answers, distribution[0, -1].tolist()))
    ('10', {'0': 0.0, '1': 0.5, 'end': 0.5})

    Two inequivalent languages are called Tomita 3. This is the one in which an odd run of 1s must not be *immediately*
    followed by an odd run of 0s (100110 is a member). Source: the suite of arXiv 2510.08341; training on up to 40
    symbols is our choice.
    """

    family = "tomita"
    version = 3
    train_lengths = (0, 40)

    def __init__(self, number: int) -> None:
        super().__init__(("0", "1"))
        self.name, self.number = f"tomita-{number}", number
        self.about, self.automaton = RULES[number]
        star_free = number in STAR_FREE
        programs = STAR_FREE.get(number, (False, False))
        kind = "star-free" if star_free else "regular with groups"
        self.facts = Facts(kind, "regular", star_free, *programs, GROUPS.get(number), (HUANG,))
        moves = self.automaton.live[self.automaton.transitions].float()
        legal = torch.cat([moves, self.automaton.accepting[:, None]], -1)
        self._next = Table(legal / legal.sum(-1, keepdim=True))  # (S, 3): p* in each state, NaN in the dead one
        self._walk = Table((moves / moves.sum(-1, keepdim=True)).nan_to_num(0.5))

    def sample(self, length: int, random: Random) -> Batch:
        """Prefixes that have not ended, (n, length + 1) with the begin token, with p* (n, length + 1, 3)."""
        symbols, states = self.automaton.walk(self._walk.on(random.device), length, random)
        p = self._next.on(random.device).index_select(0, states.flatten())
        return Batch(self.begin(symbols), p.view(random.n, length + 1, 3))

    def reference(self, context: Tensor) -> Sequence[float]:
        is_member, prefix = DEFINITIONS[self.number], "".join(map(str, context[1:].tolist()))
        legal = [any(is_member(prefix + symbol + ending) for ending in _ENDINGS) for symbol in "01"]
        legal.append(is_member(prefix))
        return [allowed / max(1, sum(legal)) for allowed in legal]

    def accepts(self, symbols: Tensor) -> Tensor:
        return self.automaton.accepts(symbols)

    def has(self, length: int, member: bool) -> bool:
        return self.automaton.has(length, member)

    def uniform(self, length: int, random: Random, member: bool) -> Tensor:
        return self.automaton.uniform(length, random, member)

    def sibling(self, name: str) -> Task | None:
        if re.fullmatch(r"tomita-\d+", name):
            raise ValueError("the grammars of Tomita are tomita-1 to tomita-7")
        return None
