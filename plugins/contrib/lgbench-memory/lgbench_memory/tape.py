"""The tape RNN.

At each position the controller reads the cell m_0 of a circular tape, and its new state h decides what is written there and
how the tape moves:

    h <- tanh(W x + U [h, m_0] + b)
    a = softmax(A h + c), the chances of five moves;  v = MLP(h), the vector to be written
    m <- a_stay w + a_right w<1> + a_left w<-1> + a_jump-right m<l> + a_jump-left m<-l>

where w is m with v in the cell 0, and m<k> is m with cell k moved to cell 0. Source: arXiv 2207.02098.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from lgbench import Architecture, Parts, Signature
from lgbench.chain import Chain
from lgbench_memory.network import Controller, Network

MOVES = 5
"""Stay, right, left, jump right, jump left."""
HIDDEN = 64
"""Width of the two hidden layers before the written vector, as published."""


def moved(tape: Tensor, moves: Tensor, value: Tensor, jump: int) -> Tensor:
    """Tape after one position, the cell to read first: (B, M, C), from chances of moves (B, 5) and a vector to write (B, C)."""
    written = torch.cat((value.unsqueeze(1), tape[:, 1:]), 1)
    shifted = (written, written.roll(-1, 1), written.roll(1, 1), tape.roll(-jump, 1), tape.roll(jump, 1))
    chances = moves[..., None, None].unbind(1)
    return torch.stack([chance * cells for chance, cells in zip(chances, shifted, strict=True)]).sum(0)


class Tape(nn.Module):
    """(B, T, W) -> the states of a controller with a circular tape of cells of C numbers, (B, T, W)."""

    def __init__(self, width: int, cell: int, train_cells: int, test_cells: int) -> None:
        super().__init__()
        self.cell, self.train_cells, self.test_cells = cell, train_cells, test_cells
        self.controller = Controller(width, width, cell)
        self.moves = nn.Linear(width, MOVES)
        self.value = Chain(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, cell))

    def forward(self, x: Tensor) -> Tensor:
        state, states = self.controller.start(x), []
        tape = x.new_zeros(len(x), self.train_cells if self.training else self.test_cells, self.cell)
        for before, seen in enumerate(self.controller.input(x).unbind(1)):
            state = self.controller.step(seen, state, tape[:, 0])
            tape = moved(tape, self.moves(state).softmax(-1), self.value(state), jump=before)
            states.append(state)
        return torch.stack(states, 1)


@final
class TapeRnn(Architecture):
    """Tape RNN (arXiv 2207.02098): a simple recurrent network that reads, writes and moves along a circular tape.

    h <- tanh(W x + U [h, m_0] + b); v = MLP(h) is written; softmax(A h + c) mixes stay, one cell right or left, and a jump of l
    cells right or left. A jump does not write, as the paper says; the published code writes before a jump too.

    Our choice of l: the number of positions before this one. The paper has the length of the input, unknown to a model that
    answers before the end; at the first position after the input both are equal. Our choice of the size: twice as many cells as
    the longest input has positions, in training and in tests (256 in the paper). The MLP has two hidden layers of 64 and ReLU,
    as published. Everything else is as in `stack-rnn`.
    """

    name = "tape-rnn"
    defaults = {"norm": "no-norm"}
    ranges = {"width": (1, 16384), "cell": (1, 1024)}

    def build(self, signature: Signature, parts: Parts, *, width: int = 32, cell: int = 8) -> Network:
        tape = Tape(width, cell, 2 * parts.train_positions, 2 * parts.test_positions)
        return Network(signature, parts.norm, width, tape)
