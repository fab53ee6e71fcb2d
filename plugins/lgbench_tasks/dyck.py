"""Dyck-(k, m): well-nested brackets of k types, at most m deep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Batch, Facts, Random, Task
from lgbench_tasks.automaton import Automaton, Table
from lgbench_tasks.language import SymbolLanguage

OPEN, CLOSE = 0, 1
PAIRS = ["()", "[]", "{}", "<>"]


@final
class Dyck(SymbolLanguage):
    """A context is a prefix of well-nested brackets of k types, at most m deep; the answer is what may follow.

    On the ground the string ends or a bracket opens, each with probability 1/2; at depth m the open bracket must close;
    in between it closes or another opens, each with probability 1/2. Opening brackets are uniform over the k types:

    >>> inputs, distribution, _ = Dyck(2, 3).sample(3, Random(1, seed=19))
    >>> Dyck(2, 3).text(inputs[0]), dict(zip(Dyck(2, 3).answers, distribution[0, -1].tolist()))
    ('[](', {'(': 0.25, '[': 0.25, ')': 0.5, ']': 0.0, 'end': 0.0})

    Source: Hewitt et al. 2020 (arXiv 2010.07515) for the distribution, arXiv 2510.08341 for the suite; the four (k, m)
    and training on up to 40 symbols are our choice. Contexts are walks that have not ended.
    """

    family = "dyck"
    version = 3
    train_lengths = (0, 40)

    def __init__(self, kinds: int, depth: int) -> None:
        pairs = [PAIRS[i] if kinds <= len(PAIRS) else f"({i + 1} {i + 1})" for i in range(kinds)]
        opens, closes = zip(*((pair.split() if " " in pair else pair) for pair in pairs), strict=True)
        super().__init__((*opens, *closes))
        self.name = f"dyck-{kinds}-{depth}"
        self.about = f"well-nested brackets of {kinds} {'type' if kinds == 1 else 'types'}, at most {depth} deep"
        self.kinds, self.depth = kinds, depth
        # With one type of brackets it is D_m of arXiv 2410.02140, which has programs for all m.
        program = True if kinds == 1 else None
        self.facts = Facts("star-free", "regular", True, program, program, sources=("arXiv 2010.07515", "arXiv 2410.02140"))
        # Depth alone is a finite automaton over open and close, with a dead state for too deep and below the ground.
        dead = depth + 1
        steps = [[level + 1 if level < depth else dead, level - 1 if level else dead] for level in range(depth + 1)]
        self.levels = Automaton([*steps, [dead, dead]], [level == 0 for level in range(depth + 2)])
        chances = torch.full((depth + 2, 2), 0.5)
        chances[0], chances[depth] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        self._walk = Table(chances)
        self._answers = Table(self._distributions())

    def _distributions(self) -> Tensor:
        """p* on the ground, at the full depth and in between, by the type of the innermost open bracket: (3 k, 2 k + 1)."""
        closing = torch.cat([torch.zeros(self.kinds, self.kinds), torch.eye(self.kinds), torch.zeros(self.kinds, 1)], 1)
        opening = torch.zeros(2 * self.kinds + 1)
        opening[: self.kinds] = 0.5 / self.kinds
        ground = opening.clone()
        ground[-1] = 0.5
        return torch.cat([ground.expand(self.kinds, -1), closing, opening + 0.5 * closing])

    def sample(self, length: int, random: Random) -> Batch:
        """Walks that have not ended, (n, length + 1) with the begin token, with p* (n, length + 1, 2 k + 1)."""
        moves, levels = self.levels.walk(self._walk.on(random.device), length, random)
        symbols, innermost = self._typed(moves, levels, random)
        between = torch.where(levels == self.depth, 1, 2)
        place = torch.where(levels == 0, 0, between) * self.kinds + innermost
        p = self._answers.on(random.device).index_select(0, place.flatten())
        return Batch(self.begin(symbols), p.view(random.n, length + 1, -1))

    def reference(self, context: Tensor) -> Sequence[float] | None:
        stack: list[int] = []
        for symbol in context[1:].tolist():
            opens, kind = symbol < self.kinds, symbol % self.kinds
            if not opens and (not stack or stack.pop() != kind) or opens and len(stack) == self.depth:
                return [0.0] * (2 * self.kinds + 1)
            stack += [kind] if opens else []
        going_deeper = 0.0 if len(stack) == self.depth else 0.5
        closing = [0.0] * self.kinds
        if stack:
            closing[stack[-1]] = 1 - going_deeper
        return [going_deeper / self.kinds] * self.kinds + closing + [0.0 if stack else 0.5]

    def sources(self, inputs: Tensor) -> Tensor:
        """The innermost open bracket, which alone may be closed; none on the ground."""
        symbols = inputs[:, 1:]
        opens = symbols < self.kinds
        levels = torch.where(opens, 1, -1).cumsum(-1)
        last = F.pad(levels, (1, 0))[:, -1:]
        # The latest that opened at its level: those before it are closed, and those after it opened above.
        at_level = opens & (levels == last) & (last > 0)
        places = torch.arange(1, inputs.shape[1], device=inputs.device)
        innermost = (places * at_level).amax(-1, keepdim=True) if symbols.shape[1] else torch.zeros_like(last)
        return F.pad(at_level & (places == innermost), (1, 0))

    def accepts(self, symbols: Tensor) -> Tensor:
        kind = symbols % self.kinds
        levels = self.levels.states(symbols // self.kinds)
        stack = torch.full((len(symbols), self.depth + 2), -1, device=symbols.device)
        matched = self.levels.accepts(symbols // self.kinds)
        for step in range(symbols.shape[1]):
            opens = symbols[:, step] < self.kinds
            slot = torch.where(opens, levels[:, step], levels[:, step + 1])[:, None]
            stack = torch.where(opens[:, None], stack.scatter(1, slot, kind[:, step, None]), stack)
            matched = matched & (stack.gather(1, slot)[:, 0] == kind[:, step])
        return matched

    def has(self, length: int, member: bool) -> bool:
        return self.levels.has(length, member) if member else length > 0

    def uniform(self, length: int, random: Random, member: bool) -> Tensor:
        """Members by counting paths of depth, each of which has k^(length / 2) typings; non-members, three quarters of
        all strings or more, by drawing again.
        """
        if member:
            moves = self.levels.uniform(length, random)
            return self._typed(moves, self.levels.states(moves), random)[0]
        if not self.has(length, member):
            raise ValueError(f"there is no non-member of length {length}")
        tries = random.branch()
        symbols = tries.integers(2 * self.kinds, length)
        while (wrong := self.accepts(symbols)).any():
            symbols = torch.where(wrong[:, None], tries.integers(2 * self.kinds, length), symbols)
        return symbols

    def sibling(self, name: str) -> Task | None:
        found = re.fullmatch(r"dyck-(\d+)-(\d+)", name)
        if not found:
            return None
        kinds, depth = int(found[1]), int(found[2])
        if name != f"dyck-{kinds}-{depth}" or not (1 <= kinds <= 1000 and 1 <= depth <= 1000):
            raise ValueError("dyck-K-M takes K bracket types and depth M from 1 to 1000, as in dyck-3-4")
        task = Dyck(kinds, depth)
        task.family = task.name  # asked for by hand: the mean over the family stays over the listed members
        return task

    def _typed(self, moves: Tensor, levels: Tensor, random: Random) -> tuple[Tensor, Tensor]:
        """Give brackets their types: symbols (n, L), and the type of the innermost open bracket (n, L + 1), 0 on the ground."""
        n, length = moves.shape
        # One position after the other in memory, as the loop goes.
        moves, levels = moves.T.contiguous(), levels.T.contiguous()
        symbols, opens = random.integers(self.kinds, length).T.contiguous(), moves == OPEN
        innermost = torch.zeros_like(levels)
        # A stack for each walk, in which level l has the place l. What closes writes to a place that nobody reads.
        stack = levels.new_zeros(self.depth + 2, n)
        written = torch.where(opens, levels[1:], self.depth + 1)
        read = torch.stack([torch.maximum(levels[1:], levels[:-1]), levels[1:]], 1)
        for step in range(length):
            stack.scatter_(0, written[step : step + 1], symbols[step : step + 1])
            symbols[step], innermost[step + 1] = stack.gather(0, read[step])
        symbols = torch.where(opens, symbols, symbols + self.kinds)
        return symbols.T, innermost.T
