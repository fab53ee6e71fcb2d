"""Dyck-(k, m): well-nested brackets of k types, at most m deep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import torch
from torch import Generator, Tensor

from lgbench import Batch, Task
from lgbench_tasks.automaton import Automaton
from lgbench_tasks.language import SymbolLanguage

OPEN, CLOSE = 0, 1
PAIRS = ["()", "[]", "{}", "<>"]


@final
class Dyck(SymbolLanguage):
    """A context is a prefix of well-nested brackets of k types, at most m deep; the answer is what may follow.

    On the ground the string ends or a bracket opens, each with probability 1/2; at depth m the open bracket must close;
    in between it closes or another opens, each with probability 1/2. Opening brackets are uniform over the k types:

    >>> inputs, distribution, _ = Dyck(2, 3).sample(1, 3, torch.Generator().manual_seed(4))
    >>> Dyck(2, 3).text(inputs[0]), dict(zip(Dyck(2, 3).answers, distribution[0, -1].tolist()))
    ('[](', {'(': 0.25, '[': 0.25, ')': 0.5, ']': 0.0, 'end': 0.0})

    Source: Hewitt et al. 2020 (arXiv 2010.07515) for the distribution, arXiv 2510.08341 for the suite; the four (k, m)
    and training on up to 40 symbols are our choice. Contexts are walks that have not ended.
    """

    family = "dyck"
    version = 2
    train_lengths = (0, 40)

    def __init__(self, kinds: int, depth: int) -> None:
        pairs = [PAIRS[i] if kinds <= len(PAIRS) else f"({i + 1} {i + 1})" for i in range(kinds)]
        opens, closes = zip(*((pair.split() if " " in pair else pair) for pair in pairs), strict=True)
        super().__init__((*opens, *closes))
        self.name = f"dyck-{kinds}-{depth}"
        self.kinds, self.depth = kinds, depth
        # Depth alone is a finite automaton over open and close, with a dead state for too deep and below the ground.
        dead = depth + 1
        steps = [[level + 1 if level < depth else dead, level - 1 if level else dead] for level in range(depth + 1)]
        self.levels = Automaton([*steps, [dead, dead]], [level == 0 for level in range(depth + 2)])
        self._walk = torch.full((depth + 2, 2), 0.5)
        self._walk[0] = torch.tensor([1.0, 0.0])
        self._walk[depth] = torch.tensor([0.0, 1.0])

    def sample(self, n: int, length: int, generator: Generator) -> Batch:
        """Walks that have not ended, (n, length + 1) with the begin token, with p* (n, length + 1, 2 k + 1)."""
        moves, levels = self.levels.walk(self._walk, n, length, generator)
        symbols, innermost = self._typed(moves, levels, generator)
        p = torch.zeros(n, length + 1, 2 * self.kinds + 1, device=symbols.device)
        ground, full = levels == 0, levels == self.depth
        p[..., : self.kinds] = torch.where(full, 0.0, 0.5 / self.kinds)[..., None]
        p[..., -1] = torch.where(ground, 0.5, 0.0)
        closing = torch.where(ground, 0.0, torch.where(full, 1.0, 0.5))
        return Batch(self.begin(symbols), p.scatter_add(-1, (self.kinds + innermost)[..., None], closing[..., None]))

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

    def accepts(self, symbols: Tensor) -> Tensor:
        kind = symbols % self.kinds
        levels = self.levels.states(symbols // self.kinds)
        stack = torch.full((len(symbols), self.depth + 2), -1, device=symbols.device)
        matched = self.levels.accepting.to(symbols.device)[levels[:, -1]]
        for step in range(symbols.shape[1]):
            opens = symbols[:, step] < self.kinds
            slot = torch.where(opens, levels[:, step], levels[:, step + 1])[:, None]
            stack = torch.where(opens[:, None], stack.scatter(1, slot, kind[:, step, None]), stack)
            matched = matched & (stack.gather(1, slot)[:, 0] == kind[:, step])
        return matched

    def has(self, length: int, member: bool) -> bool:
        return self.levels.has(length, member) if member else length > 0

    def uniform(self, n: int, length: int, generator: Generator, member: bool) -> Tensor:
        """Members by counting paths of depth, each of which has k^(length / 2) typings; non-members, three quarters of
        all strings or more, by drawing again.
        """
        if member:
            moves = self.levels.uniform(n, length, generator)
            return self._typed(moves, self.levels.states(moves), generator)[0]
        if not self.has(length, member):
            raise ValueError(f"there is no non-member of length {length}")
        shape, device = (n, length), generator.device
        symbols = torch.randint(2 * self.kinds, shape, generator=generator, device=device)
        while (wrong := self.accepts(symbols)).any():
            again = torch.randint(2 * self.kinds, shape, generator=generator, device=device)
            symbols = torch.where(wrong[:, None], again, symbols)
        return symbols

    def sibling(self, name: str) -> Task | None:
        found = re.fullmatch(r"dyck-(\d+)-(\d+)", name)
        if not found:
            return None
        kinds, depth = int(found[1]), int(found[2])
        if not (1 <= kinds <= 1000 and 1 <= depth <= 1000):
            raise ValueError("dyck-K-M takes K bracket types and depth M from 1 to 1000, as in dyck-3-4")
        task = Dyck(kinds, depth)
        task.family = task.name  # asked for by hand: the mean over the family stays over the listed members
        return task

    def _typed(self, moves: Tensor, levels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Give brackets their types: symbols (n, L), and the type of the innermost open bracket (n, L + 1), 0 on the ground."""
        n, length = moves.shape
        device = moves.device
        kinds = torch.randint(self.kinds, (length, n, 1), generator=generator, device=device)
        stack = torch.zeros(n, self.depth + 1, dtype=torch.int64, device=device)
        symbols, innermost = [], [stack[:, 0]]
        for step in range(length):
            opens, level = moves[:, step, None] == OPEN, levels[:, step + 1, None]
            stack = torch.where(opens, stack.scatter(1, level, kinds[step]), stack)
            kind = stack.gather(1, torch.where(opens, level, level + 1))
            symbols.append(kind + torch.where(opens, 0, self.kinds))
            innermost.append(stack.gather(1, level)[:, 0])
        return (torch.cat(symbols, 1) if symbols else moves), torch.stack(innermost, 1)
