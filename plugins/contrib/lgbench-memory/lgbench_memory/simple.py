"""The simple recurrent network."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from lgbench import Architecture, Parts, Signature
from lgbench_memory.network import Controller, Network


class Simple(Controller):
    """(B, T, W) -> the controller's states after every position, (B, T, W)."""

    def forward(self, x: Tensor) -> Tensor:
        state, states = self.start(x), []
        for seen in self.input(x).unbind(1):
            state = self.step(seen, state)
            states.append(state)
        return torch.stack(states, 1)


@final
class SimpleRnn(Architecture):
    """Simple recurrent network (Elman 1990): h <- tanh(W x + U h + b), as torch.nn.RNN, without a memory besides h.

    It is the controller of `stack-rnn` and `tape-rnn` alone, and the baseline of both in the Chomsky benchmark (arXiv
    2207.02098). Our choices: those of `stack-rnn`; layers one upon the other, where the benchmark has one of width 256.
    """

    name = "rnn"
    defaults = {"norm": "no-norm"}
    ranges = {"layers": (1, 256), "width": (1, 16384)}

    def build(self, signature: Signature, parts: Parts, *, layers: int = 2, width: int = 32) -> Network:
        return Network(signature, parts.norm, width, *(Simple(width, width) for _ in range(layers)))
