"""Finite automata as tensors: live states, walks that survive, and uniform strings by counting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import final

import torch
from torch import Generator, Tensor


@final
class Automaton:
    """A complete deterministic automaton with S states and K symbols; state 0 is the start.

    transitions: (S, K) int64, the state after each symbol. accepting: (S,) bool.
    """

    def __init__(self, transitions: Sequence[Sequence[int]] | Tensor, accepting: Sequence[bool] | Tensor) -> None:
        self.transitions = torch.as_tensor(transitions)
        self.accepting = torch.as_tensor(accepting)
        self._counted: dict[tuple[bool, int], Tensor] = {}

    @cached_property
    def live(self) -> Tensor:
        """(S,) bool: states from which an accepting state can still be reached."""
        live = self.accepting
        while not torch.equal(live, grown := live | live[self.transitions].any(-1)):
            live = grown
        return live

    def states(self, symbols: Tensor) -> Tensor:
        """States before each symbol and after the last: (n, L) -> (n, L + 1)."""
        transitions = self.transitions.to(symbols.device)
        states = [torch.zeros_like(symbols[:, 0]) if symbols.shape[1] else symbols.new_zeros(len(symbols))]
        for step in range(symbols.shape[1]):
            states.append(transitions[states[-1], symbols[:, step]])
        return torch.stack(states, 1)

    def accepts(self, symbols: Tensor) -> Tensor:
        """Membership of strings: (n, L) -> (n,) bool."""
        return self.accepting.to(symbols.device)[self.states(symbols)[:, -1]]

    def walk(self, chances: Tensor, n: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Random walks from the start: the next symbol in state s has probability chances[..., s, :].

        chances: (S, K), or (length, S, K) where they depend on the step. Returns symbols (n, length) and states
        (n, length + 1).
        """
        device = generator.device
        transitions = self.transitions.to(device)
        bounds = chances.to(device).cumsum(-1)
        # Rounding must not lead to a symbol after the last possible one: from there on the bound is out of reach.
        bounds = torch.where(bounds >= bounds[..., -1:], 2.0, bounds)[..., :-1].expand(length, -1, -1)
        draws = torch.rand(length, n, 1, generator=generator, device=device, dtype=bounds.dtype)
        state = torch.zeros(n, dtype=torch.int64, device=device)
        symbols, states = [], [state]
        for step in range(length):
            symbol = (draws[step] >= bounds[step][state]).sum(-1)
            state = transitions[state, symbol]
            symbols.append(symbol)
            states.append(state)
        walked = torch.stack(symbols, 1) if length else torch.empty(n, 0, dtype=torch.int64, device=device)
        return walked, torch.stack(states, 1)

    def uniform(self, n: int, length: int, generator: Generator, member: bool = True) -> Tensor:
        """n strings (n, length), uniform among the members, or the non-members, of that length.

        Raises ValueError where there is none. By counting accepted continuations, so nothing is rejected.
        """
        if not self.has(length, member):
            raise ValueError(f"there is no {'member' if member else 'non-member'} of length {length}")
        remaining = self._log_counts(length, member)
        after = remaining[:-1].flip(0)[:, self.transitions]  # (length, S, K): continuations that each symbol leaves
        chances = after.softmax(-1).nan_to_num(0.0)
        return self.walk(chances, n, length, generator)[0]

    def has(self, length: int, member: bool = True) -> bool:
        """Whether there is a member, or a non-member, of that length."""
        return bool(self._log_counts(length, member)[-1, 0] > -torch.inf)

    def count(self, length: int, member: bool = True) -> float:
        """How many members, or non-members, of that length there are (float64: exact up to 2^53)."""
        return float(self._log_counts(length, member)[-1, 0].exp().round())

    def _log_counts(self, length: int, member: bool) -> Tensor:
        """(length + 1, S) float64: log of the number of strings of each length that lead to acceptance, or rejection."""
        if (member, length) not in self._counted:
            wanted = self.accepting if member else ~self.accepting
            counts = [torch.where(wanted, 0.0, -torch.inf).double()]
            for _ in range(length):
                counts.append(counts[-1][self.transitions].logsumexp(-1))
            self._counted[member, length] = torch.stack(counts)
        return self._counted[member, length]
