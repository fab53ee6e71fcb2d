"""Finite automata as tensors: live states, walks that survive, and uniform strings by counting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from lgbench import Random


@final
class Table:
    """A tensor that is copied to a device once, when it is first needed there."""

    def __init__(self, tensor: Tensor) -> None:
        self._copies = {tensor.device: tensor}

    def on(self, device: torch.device) -> Tensor:
        if device not in self._copies:
            self._copies[device] = next(iter(self._copies.values())).to(device)
        return self._copies[device]


@final
class Automaton:
    """A complete deterministic automaton with S states and K symbols; state 0 is the start.

    transitions: (S, K) int64, the state after each symbol. accepting: (S,) bool.
    """

    def __init__(self, transitions: Sequence[Sequence[int]] | Tensor, accepting: Sequence[bool] | Tensor) -> None:
        self.transitions = torch.as_tensor(transitions)
        self.accepting = torch.as_tensor(accepting)
        self._next = Table(self.transitions.flatten())
        self._accepting = Table(self.accepting)
        self._counted: dict[bool, list[Tensor]] = {}

    @cached_property
    def live(self) -> Tensor:
        """(S,) bool: states from which an accepting state can still be reached."""
        live = self.accepting
        while not torch.equal(live, grown := live | live[self.transitions].any(-1)):
            live = grown
        return live

    def states(self, symbols: Tensor) -> Tensor:
        """States before each symbol and after the last: (n, L) -> (n, L + 1)."""
        following, kinds = self._next.on(symbols.device), self.transitions.shape[1]
        states = torch.zeros(symbols.shape[1] + 1, len(symbols), dtype=torch.int64, device=symbols.device)
        for step, symbol in enumerate(symbols.T.contiguous()):
            states[step + 1] = following.index_select(0, torch.add(symbol, states[step], alpha=kinds))
        return states.T

    def accepts(self, symbols: Tensor) -> Tensor:
        """Membership of strings: (n, L) -> (n,) bool."""
        return self._accepting.on(symbols.device)[self.states(symbols)[:, -1]]

    def walk(self, chances: Tensor, length: int, random: Random) -> tuple[Tensor, Tensor]:
        """Random walks from the start: the next symbol in state s has probability chances[..., s, :].

        chances: (S, K), or (length, S, K) where they depend on the step, on the device. Returns symbols (n, length) and states
        (n, length + 1), which lie in memory one position after the other.
        """
        following, kinds = self._next.on(random.device), self.transitions.shape[1]
        draws = random.uniform(length, dtype=chances.dtype).T.contiguous()
        limits = bounds(chances).expand(length, -1, -1)
        symbols = torch.empty(length, random.n, dtype=torch.int64, device=random.device)
        states = symbols.new_zeros(length + 1, random.n)
        for step, (drawn, limit) in enumerate(zip(draws, limits, strict=True)):
            torch.sum(drawn >= limit.index_select(1, states[step]), 0, out=symbols[step])
            states[step + 1] = following.index_select(0, torch.add(symbols[step], states[step], alpha=kinds))
        return symbols.T, states.T

    def uniform(self, length: int, random: Random, member: bool = True) -> Tensor:
        """Strings (n, length), uniform among the members, or the non-members, of that length.

        Raises ValueError where there is none. By counting accepted continuations, so nothing is rejected.
        """
        if not self.has(length, member):
            raise ValueError(f"there is no {'member' if member else 'non-member'} of length {length}")
        remaining = torch.stack(self._log_counts(length, member))
        after = remaining[:-1].flip(0)[:, self.transitions]  # (length, S, K): continuations that each symbol leaves
        chances = after.softmax(-1).nan_to_num(0.0)
        return self.walk(chances.to(random.device), length, random)[0]

    def has(self, length: int, member: bool = True) -> bool:
        """Whether there is a member, or a non-member, of that length."""
        return bool(self._log_counts(length, member)[-1][0] > -torch.inf)

    def count(self, length: int, member: bool = True) -> float:
        """Number of members, or non-members, of that length, rounded: the relative error is about 1e-13 at length 100."""
        return float(self._log_counts(length, member)[-1][0].exp().round())

    def _log_counts(self, length: int, member: bool) -> list[Tensor]:
        """Logs of the numbers of strings that lead to acceptance, or rejection, (S,) float64 for each length up to `length`."""
        wanted = self.accepting if member else ~self.accepting
        counts = self._counted.setdefault(member, [torch.where(wanted, 0.0, -torch.inf).double()])
        while len(counts) <= length:
            counts.append(counts[-1][self.transitions].logsumexp(-1))
        return counts[: length + 1]


def bounds(chances: Tensor) -> Tensor:
    """A uniform number means as many symbols on as bounds it reaches: (..., S, K) -> (..., K - 1, S)."""
    sums = chances.cumsum(-1)
    # Rounding must not lead to a symbol after the last possible one: from there on the bound is out of reach.
    return torch.where(sums >= sums[..., -1:], 2.0, sums)[..., :-1].mT.contiguous()
