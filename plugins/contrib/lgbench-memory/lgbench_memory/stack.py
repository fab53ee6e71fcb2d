"""The stack RNN.

At each position the controller reads the top s_1 of the stack, and its new state h decides what happens to the stack:

    h <- tanh(W x + U [h, s_1] + b)
    a = softmax(A h + c), the chances of push, pop and no operation;  v = V h + d, the vector to be pushed
    s_1 <- a_push v       + a_pop s_2     + a_none s_1
    s_i <- a_push s_(i-1) + a_pop s_(i+1) + a_none s_i

With chances of 0 and 1 that is a stack; a pop of an empty stack leaves it empty. Source: arXiv 2207.02098 and its code, after
Joulin & Mikolov 2015 (arXiv 1503.01007).
"""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Architecture, Parts, Signature
from lgbench_memory.network import Controller, Network

ACTIONS = 3
"""Push, pop, no operation."""


def moved(stack: Tensor, actions: Tensor, value: Tensor) -> Tensor:
    """Stack after one position, its top first: (B, N, C), from chances of the actions (B, 3) and the vector to push (B, C)."""
    push, pop, none = actions[..., None, None].unbind(1)
    pushed = torch.cat((value.unsqueeze(1), stack[:, :-1]), 1)
    popped = F.pad(stack[:, 1:], (0, 0, 0, 1))
    return push * pushed + pop * popped + none * stack


class Stack(nn.Module):
    """(B, T, W) -> the states of a controller with a stack of cells of C numbers, (B, T, W)."""

    def __init__(self, width: int, cell: int) -> None:
        super().__init__()
        self.cell = cell
        self.controller = Controller(width, width, cell)
        self.actions = nn.Linear(width, ACTIONS)
        self.value = nn.Linear(width, cell)

    def forward(self, x: Tensor) -> Tensor:
        state, states = self.controller.start(x), []
        stack = x.new_zeros(*x.shape[:2], self.cell)  # no position pushes twice, so T cells are enough
        for seen in self.controller.input(x).unbind(1):
            state = self.controller.step(seen, state, stack[:, 0])
            stack = moved(stack, self.actions(state).softmax(-1), self.value(state))
            states.append(state)
        return torch.stack(states, 1)


@final
class StackRnn(Architecture):
    """Stack RNN (arXiv 2207.02098, 1503.01007): a simple recurrent network that reads the top of a stack and pushes and pops.

    h <- tanh(W x + U [h, s_1] + b); a = softmax(A h + c) mixes push, pop and no operation; v = V h + d is pushed.

    As published there is one layer, and a cell has 8 numbers. Our choices: tanh, where the library of the published code has
    ReLU; an embedding, where the published controller reads one-hot symbols; no limit of depth (128 cells in training, more in
    tests); width 32 (256); and no norm unless the entry names a scheme, which acts on the embedding and on the states alone.
    """

    name = "stack-rnn"
    defaults = {"norm": "no-norm"}
    ranges = {"width": (1, 16384), "cell": (1, 1024)}

    def build(self, signature: Signature, parts: Parts, *, width: int = 32, cell: int = 8) -> Network:
        return Network(signature, parts.norm, width, Stack(width, cell))
