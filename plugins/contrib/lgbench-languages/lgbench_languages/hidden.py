"""Random probabilistic automata and hidden Markov models."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self, final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Facts, Random, Signature, Task, Tokens
from lgbench_tasks.automaton import Automaton, Table, bounds

MOST = 16
"""Largest number of states, and of symbols. Contexts of a hidden Markov model of this size take a tenth of a training step."""


class RandomSource(Task):
    """Symbols without an end, from a random object with S states and V symbols that the seed in the name draws."""

    version = 1
    train_lengths = (0, 50)
    facts = Facts("random automata")

    def __init__(self, states: int, symbols: int, seed: int) -> None:
        self.name = f"{self.family}-{states}-{symbols}-{seed}"
        self.states, self.symbols = states, symbols
        self.signature = Signature(Tokens(symbols + 1), symbols, Answers.EVERY_PREFIX)
        self._draw(Random(1, seed))

    @abstractmethod
    def _draw(self, random: Random) -> None:
        """Draw the object of this name."""

    @abstractmethod
    def log_likelihood(self, symbols: Sequence[int]) -> float:
        """Natural logarithm of the probability of a prefix, by plain recursion."""

    def begin(self, symbols: Tensor) -> Tensor:
        """Put the begin token before each string: (n, L) -> (n, L + 1)."""
        return F.pad(symbols, (1, 0), value=self.symbols)

    def text(self, inputs: Tensor) -> str:
        return " ".join(map(str, inputs[1:].tolist())) or "(empty)"

    def context(self, text: str) -> Tensor:
        """Begin token and the symbols of the text, with blanks between them."""
        words = [] if text.strip() == "(empty)" else text.split()
        for word in words:
            if word not in self.answers:
                shown = f"the numbers from 0 to {self.symbols - 1}, with blanks between them"
                raise ValueError(f"{word!r} is none of its symbols, which are {shown}")
        return torch.tensor([self.symbols, *map(int, words)])

    def reference(self, context: Tensor) -> Sequence[float]:
        prefix = context[1:].tolist()
        before = self.log_likelihood(prefix)
        return [math.exp(self.log_likelihood([*prefix, symbol]) - before) for symbol in range(self.symbols)]

    def sibling(self, name: str) -> Self | None:
        found = re.fullmatch(rf"{self.family}-(\d+)-(\d+)-(\d+)", name)
        if not found:
            return None
        states, symbols, seed = map(int, found.groups())
        if name != f"{self.family}-{states}-{symbols}-{seed}" or not (1 <= states <= MOST and 2 <= symbols <= MOST):
            form = f"{self.family}-S-V-SEED"
            raise ValueError(
                f"{form} takes S from 1 to {MOST} states and V from 2 to {MOST} symbols, as in {self.family}-5-3-7"
            )
        return type(self)(states, symbols, seed)


@final
class ProbabilisticAutomaton(RandomSource):
    """A context is a walk through a random automaton, whose state says how probable each symbol is.

    From state 0 on, each state and symbol lead to a random next state. The symbols tell the state, and p* is its row:

    >>> task = ProbabilisticAutomaton(3, 2, seed=2)
    >>> inputs, distribution, _ = task.sample(4, Random(1))
    >>> inputs[0, 1:].tolist(), task.automaton.states(inputs[:, 1:])[0].tolist()
    ([0, 0, 0, 1], [0, 1, 1, 1, 2])
    >>> distribution[0, -1].double().round(decimals=3).tolist()
    [0.106, 0.894]

    Source: random automata as tasks are those of Akyürek et al. 2024 (arXiv 2401.12973). Rows that are fourth powers of uniform
    numbers over their sum, and training on up to 50 symbols are our choice.
    """

    family = "pfa"

    def _draw(self, random: Random) -> None:
        self.automaton = Automaton(random.integers(self.states, self.states, self.symbols)[0], [True] * self.states)
        self.emitted = rows(random, self.states, self.symbols, power=4)
        self._emitted = Table(self.emitted)

    def sample(self, length: int, random: Random) -> Batch:
        """Walks (n, length + 1) with the begin token, with p* (n, length + 1, V)."""
        emitted = self._emitted.on(random.device)
        symbols, states = self.automaton.walk(emitted, length, random)
        return Batch(self.begin(symbols), emitted.float().index_select(0, states.flatten()).view(random.n, length + 1, -1))

    def log_likelihood(self, symbols: Sequence[int]) -> float:
        emitted, transitions = self.emitted.tolist(), self.automaton.transitions.tolist()
        state, found = 0, 0.0
        for symbol in symbols:
            found += math.log(emitted[state][symbol])
            state = transitions[state][symbol]
        return found


@final
class HiddenMarkov(RandomSource):
    """A context is what a random hidden Markov model emits; p* is what a reader expects who has not seen the states.

    State 0 comes first. Each state emits a symbol and goes on, by chances of its own. The forward algorithm gives p*:

    >>> inputs, distribution, _ = HiddenMarkov(3, 2, seed=3).sample(3, Random(1))
    >>> inputs[0, 1:].tolist(), distribution[0].double().round(decimals=3).tolist()
    ([0, 1, 1], [[1.0, 0.0], [0.526, 0.474], [0.022, 0.978], [0.058, 0.942]])

    Source: Rabiner 1989, "A tutorial on hidden Markov models". Rows that are eighth powers of uniform numbers over their sum,
    and training on up to 50 symbols are our choice.
    """

    family = "hmm"

    def _draw(self, random: Random) -> None:
        self.moves = rows(random, self.states, self.states, power=8)
        self.emitted = rows(random, self.states, self.symbols, power=8)
        self._moves, self._emitted = Table(self.moves), Table(self.emitted)

    def sample(self, length: int, random: Random) -> Batch:
        """Emitted symbols (n, length + 1) with the begin token, with p* (n, length + 1, V)."""
        symbols = self._emissions(length, random)
        moves, emitted = self._moves.on(random.device), self._emitted.on(random.device)
        beliefs = torch.zeros(length + 1, self.states, random.n, dtype=torch.float64, device=random.device)
        beliefs[0, 0] = 1.0
        for step, symbol in enumerate(symbols):
            seen = beliefs[step] * emitted.T.index_select(0, symbol).T
            beliefs[step + 1] = mixed(seen / mixed(seen, torch.ones_like(emitted[:, :1])), moves)
        return Batch(self.begin(symbols.T), mixed(beliefs, emitted).permute(2, 0, 1).float())

    def _emissions(self, length: int, random: Random) -> Tensor:
        """Symbols (length, n)."""
        draws = random.uniform(2, length, dtype=torch.float64).permute(1, 2, 0).contiguous()
        limits = [bounds(table.on(random.device)) for table in (self._emitted, self._moves)]
        symbols = torch.empty(length, random.n, dtype=torch.int64, device=random.device)
        state = torch.zeros(random.n, dtype=torch.int64, device=random.device)
        for step in range(length):
            symbols[step] = (draws[0, step] >= limits[0].index_select(1, state)).sum(0)
            state = (draws[1, step] >= limits[1].index_select(1, state)).sum(0)
        return symbols

    def log_likelihood(self, symbols: Sequence[int]) -> float:
        """By the backward algorithm: how probable the rest is from each state, over the most probable one."""
        moves, emitted = self.moves.tolist(), self.emitted.tolist()
        rest, found = [1.0] * self.states, 0.0
        for symbol in reversed(symbols):
            after = [sum(chance * then for chance, then in zip(row, rest, strict=True)) for row in moves]
            rest = [row[symbol] * then for row, then in zip(emitted, after, strict=True)]
            found += math.log(most := max(rest))
            rest = [each / most for each in rest]
        return found + math.log(rest[0])


def rows(random: Random, count: int, width: int, power: int) -> Tensor:
    """Random probabilities, (count, width) float64: powers of uniform numbers over their sum.

    Of products and sums in a fixed order, which are the same on every machine.
    """
    uniform = random.uniform(count, width, dtype=torch.float64)[0]
    powers = torch.ones_like(uniform)
    for _ in range(power):
        powers = powers * uniform
    total = powers[:, :1]
    for column in range(1, width):
        total = total + powers[:, column : column + 1]
    return powers / total


def mixed(weights: Tensor, table: Tensor) -> Tensor:
    """Rows of a table by weights: (..., S, n), (S, V) -> (..., V, n). Sums in one order, whatever n is."""
    found = weights[..., :1, :] * table[0][:, None]
    for state in range(1, len(table)):
        found += weights[..., state : state + 1, :] * table[state][:, None]
    return found
