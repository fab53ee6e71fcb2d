"""Dropout: the setting `train.dropout`, on the output of every sublayer that a norm scheme places."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from lgbench.chain import Chain
from lgbench.contracts import NormScheme, SublayerSpec, TensorModule
from lgbench.noise import Noise


class Dropout(nn.Module):
    """Output of a sublayer, (B, T, W), in training with a share `rate` of zeros and the rest divided by 1 - `rate`.

    The harness draws the mask, so `torch.nn.Dropout` is no choice: its numbers come from torch's global generator, and depend
    on the population and on interruptions.
    """

    def __init__(self, rate: float, batch: int, positions: int, width: int) -> None:
        """`positions`: largest T in training."""
        super().__init__()
        self.rate = rate
        self.noise = Noise(batch, positions, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, W) -> the same shape."""
        if not self.training:
            return x
        # index_select, because a slice compares T with the drawn positions, and no program would then serve all lengths.
        noise = self.noise().index_select(-2, torch.arange(x.shape[-2], device=x.device))
        masked: Tensor = x * (noise >= self.rate) / (1 - self.rate)
        return masked


def with_dropout(scheme: NormScheme, rate: float, batch: int, positions: int) -> NormScheme:
    """Copy of a norm scheme with dropout on the output of each sublayer, before the norm on the output and the residual sum."""

    def dropout(spec: SublayerSpec) -> Dropout:
        return Dropout(rate, batch, positions, spec.width)

    def residual(spec: SublayerSpec, sublayer: TensorModule) -> TensorModule:
        return scheme.residual(spec, Chain(sublayer, dropout(spec)))

    def output(spec: SublayerSpec) -> TensorModule:
        return Chain(dropout(spec), scheme.output(spec))

    own = copy.copy(scheme)
    vars(own).update(residual=residual, output=output)  # frozen dataclasses too
    return own


def has_dropout(model: object) -> bool:
    """Whether some sublayer of a model has dropout."""
    return any(isinstance(module, Dropout) for module in cast(nn.Module, model).modules())
