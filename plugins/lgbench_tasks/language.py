"""Languages over named symbols: contexts with their begin token, and strings for the ROC AUC."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Language, Random, Signature, Strings, Tokens

MAX_EDITS = 3
EDIT_ROUNDS = 16
"""Rounds of drawing edits anew. A string that is still a member after them is replaced by a uniform non-member."""


class SymbolLanguage(Language):
    """A language over named symbols; subclasses say how its members and non-members are drawn and recognized."""

    symbols: tuple[str, ...]

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self.symbols = symbols
        self.signature = Signature(Tokens(len(symbols) + 1), len(symbols) + 1, Answers.EVERY_PREFIX)

    @abstractmethod
    def accepts(self, symbols: Tensor) -> Tensor:
        """Membership: (n, L) -> (n,) bool."""

    @abstractmethod
    def has(self, length: int, member: bool) -> bool:
        """Whether there is a member, or a non-member, of that length."""

    @abstractmethod
    def uniform(self, length: int, random: Random, member: bool) -> Tensor:
        """Strings (n, length), uniform among the members, or the non-members, of that length."""

    @property
    def answers(self) -> tuple[str, ...]:
        return (*self.symbols, "end")

    def text(self, inputs: Tensor) -> str:
        blank = " " if max(map(len, self.symbols)) > 1 else ""  # (1 and 1) are (11) without one
        return blank.join(self.symbols[token] for token in inputs[1:].tolist()) or "(empty)"

    def begin(self, symbols: Tensor) -> Tensor:
        """Put the begin token before each string: (n, L) -> (n, L + 1)."""
        return F.pad(symbols, (1, 0), value=len(self.symbols))

    def testable_length(self, length: int) -> int:
        for distance in range(length + 64):
            for nearby in (length + distance, length - distance):
                if nearby >= 0 and self.has(nearby, True) and self.has(nearby, False):
                    return nearby
        raise ValueError(f"{self.name} has no length near {length} with both members and non-members")

    def strings(self, length: int, random: Random) -> Strings:
        """Half members; of the non-members, half uniform and half members spoilt by 1 to 3 random edits."""
        n, half = random.n, random.n // 2
        first_spoilt = n - (n - half) // 2
        members = self.uniform(length, random[:half], True)
        spoilt = self._spoilt(length, random[first_spoilt:])
        others = self.uniform(length, random[half:first_spoilt], False)
        is_member = torch.arange(n, device=random.device) < half
        return Strings(self.begin(torch.cat([members, others, spoilt])), is_member)

    def _spoilt(self, length: int, random: Random) -> Tensor:
        """Uniform members with 1 to 3 symbols replaced such that they left the language, (n, length)."""
        members = self.uniform(length, random, True)
        result = self.uniform(length, random, False)
        missing = torch.ones(random.n, dtype=torch.bool, device=random.device)
        tries = random.branch()
        for _ in range(EDIT_ROUNDS):
            if not missing.any():
                break
            edits = 1 + tries.integers(MAX_EDITS, 1)
            places = tries.integers(length, MAX_EDITS)
            shifts = 1 + tries.integers(len(self.symbols) - 1, MAX_EDITS)
            others = (members.gather(1, places) + shifts) % len(self.symbols)
            edited = members
            for edit in range(MAX_EDITS):  # a place that is drawn twice is edited once
                one = slice(edit, edit + 1)
                edited = torch.where(edit < edits, edited.scatter(1, places[:, one], others[:, one]), edited)
            left = missing & ~self.accepts(edited)
            result = torch.where(left[:, None], edited, result)
            missing = missing & ~left
        return result
