"""Weight matrices of sublayers, with the initial weights that the norm scheme asks for."""

from __future__ import annotations

import torch
from torch import nn

from lgbench import Matrix, NormScheme, SublayerSpec


def linear(norm: NormScheme, spec: SublayerSpec, matrix: Matrix, inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A layer whose initial weights are multiplied by the gain of the norm scheme."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    gain = norm.gain(spec, matrix)
    if gain != 1:
        with torch.no_grad():
            layer.weight.mul_(gain)
    return layer
