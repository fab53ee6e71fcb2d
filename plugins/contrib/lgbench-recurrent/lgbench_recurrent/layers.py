"""One recurrent layer, with the parameters of torch.nn.LSTM or torch.nn.GRU, that runs in two ways.

Training runs it through `torch.func.vmap`, for which the fused kernels have no batching rule, so there it is a loop over
positions. Evaluation, on inputs of thousands of positions, runs the fused kernel. W is the width of input and state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ONE_LAYER = (True, 1, 0.0, False, False, True)
"""Arguments of the fused kernels: with biases, number of layers, dropout, in training, in both directions, batch first."""


class RecurrentLayer(nn.Module, ABC):
    """(B, T, W) -> the states after every position, (B, T, W). It starts from a state of zeros.

    Names, shapes and initialization of the parameters, uniform in +-1 / sqrt(W), are those of `like`, a
    layer of torch.nn. That module itself is not kept: it also holds its weights outside of its parameters, where
    `torch.func.functional_call` does not replace them in every version of torch.
    """

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, like: nn.RNNBase) -> None:
        super().__init__()
        for name, parameter in like.named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, x: Tensor) -> Tensor:
        return self.stepwise(x) if self.training else self.fused(x)

    @abstractmethod
    def stepwise(self, x: Tensor) -> Tensor:
        """Position by position, in operations that vmap can batch, with gradients."""

    @abstractmethod
    def fused(self, x: Tensor) -> Tensor:
        """All positions in one call."""

    def parameters_in_order(self) -> list[Tensor]:
        """In the order of the fused kernels' arguments."""
        return [self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0]


@final
class LstmLayer(RecurrentLayer):
    """Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000 and without peepholes, as torch.nn.LSTM.

    i, f, o = sigmoid(W x + U h + b), g = tanh(W x + U h + b), each with its own W, U and b;
    c <- f * c + i * g, h <- o * tanh(c). The forget gate's bias starts as torch's own does, not at 1.
    """

    def __init__(self, width: int) -> None:
        super().__init__(nn.LSTM(width, width))

    def stepwise(self, x: Tensor) -> Tensor:
        bias = self.bias_ih_l0 + self.bias_hh_l0
        hidden = cell = torch.zeros_like(x[:, 0])
        recurrent = self.weight_hh_l0.T
        states = []
        for seen in F.linear(x, self.weight_ih_l0, bias).unbind(1):  # (B, 4 W)
            i, f, g, o = torch.addmm(seen, hidden, recurrent).chunk(4, -1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            states.append(hidden)
        return torch.stack(states, 1)

    def fused(self, x: Tensor) -> Tensor:
        zeros = x.new_zeros(1, x.shape[0], x.shape[-1])
        states, *_ = torch.lstm(x, (zeros, zeros), self.parameters_in_order(), *ONE_LAYER)
        return states


@final
class GruLayer(RecurrentLayer):
    """arXiv 1406.1078, with the reset gate on the recurrent product, as torch.nn.GRU has it, not on the state before it.

    r, z = sigmoid(W x + U h + b), n = tanh(W x + b + r * (U h + b')), each with its own W, U and biases;
    h <- (1 - z) * n + z * h.
    """

    def __init__(self, width: int) -> None:
        super().__init__(nn.GRU(width, width))

    def stepwise(self, x: Tensor) -> Tensor:
        hidden = torch.zeros_like(x[:, 0])
        recurrent = self.weight_hh_l0.T
        states = []
        for seen in F.linear(x, self.weight_ih_l0, self.bias_ih_l0).unbind(1):  # (B, 3 W)
            remembered = torch.addmm(self.bias_hh_l0, hidden, recurrent)
            (r, z, n), (r_hidden, z_hidden, n_hidden) = seen.chunk(3, -1), remembered.chunk(3, -1)
            new = (n + (r + r_hidden).sigmoid() * n_hidden).tanh()
            hidden = new + (z + z_hidden).sigmoid() * (hidden - new)
            states.append(hidden)
        return torch.stack(states, 1)

    def fused(self, x: Tensor) -> Tensor:
        zeros = x.new_zeros(1, x.shape[0], x.shape[-1])
        states, *_ = torch.gru(x, zeros, self.parameters_in_order(), *ONE_LAYER)
        return states
