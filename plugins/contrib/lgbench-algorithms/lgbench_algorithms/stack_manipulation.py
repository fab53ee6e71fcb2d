"""Stack manipulation: pop and push on a stack of bits, and give what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lgbench import Facts, Random
from lgbench_algorithms.layouts import END, EmptyTokens
from lgbench_algorithms.regular import CHOMSKY

POP, PUSH = 2, 3
"""Token of pop, and of the first of two pushes."""


@final
class StackManipulation(EmptyTokens):
    """A stack of random bits, bottom first, and random instructions; the final stack is asked for, top first.

    The stack has 1 to L - 1 symbols, instructions are the rest. To pop an empty stack changes nothing:

    >>> task = StackManipulation()
    >>> inputs, distribution, weights = task.sample(6, Random(1))
    >>> task.text(inputs[0]), distribution.argmax(-1)[weights > 0].tolist()
    ('0 1 0 1 push-0 pop _ _ _ _ _ _ _', [1, 0, 1, 0, 2])

    Source: arXiv 2207.02098. The size of the first stack is uniform, and so are instructions. The answer ends with an end
    symbol, after which nothing counts, as in the published code. A context of length 1 is a stack without instructions.
    """

    name = family = "stack-manipulation"
    symbols = ("0", "1", "pop", "push-0", "push-1")
    outputs = ("0", "1", END)
    question = r"[01]|[01]( [01])*( (pop|push-0|push-1))+"
    facts = Facts("context-free", "deterministic context-free", sources=(CHOMSKY,))

    def draw(self, length: int, random: Random) -> tuple[Tensor, Tensor]:
        places = torch.arange(length, device=random.device)
        first = 1 + random.integers(max(1, length - 1), 1)
        tokens = torch.where(places < first, random.integers(2, length), POP + random.integers(3, length))
        sums = torch.where(tokens == POP, -1, 1).cumsum(1)
        heights = sums - sums.cummin(1).values.clamp(max=0)  # a walk that cannot go below 0
        # A pushed symbol stays if the stack is never again lower than after its push.
        lowest_after = heights.flip(1).cummin(1).values.flip(1)
        stays = (tokens != POP) & (lowest_after == heights)
        depth = heights[:, -1:] - heights  # 0 at the top
        answers = tokens.new_full((random.n, length + 2), 2)
        answers.scatter_(1, torch.where(stays, depth, length + 1), tokens % PUSH)  # the bit of a symbol or of a push
        return tokens, answers[:, : length + 1]

    def solve(self, question: str) -> Sequence[str]:
        stack: list[str] = []
        for word in question.split():
            if word == "pop":
                stack = stack[:-1]
            else:
                stack.append(word[-1])
        return [*reversed(stack), END]
