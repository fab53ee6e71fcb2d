"""What stands around the recurrences: short convolutions, gates, norms."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TAPS = 4
"""Positions that a short convolution sees, as published in all papers."""


class ShortConvolution(nn.Module):
    """A causal convolution over four positions, for each feature its own, and SiLU: (B, H, T, C) -> the same shape.

    Weights (4, H, C) and biases start as those of nn.Conv1d, uniform in +-1/2.
    """

    def __init__(self, heads: int, features: int, bias: bool = False) -> None:
        super().__init__()
        bound = TAPS**-0.5
        self.weight = nn.Parameter(torch.empty(TAPS, heads, features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(heads * features).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        positions = x.shape[2]
        padded = F.pad(x, (0, 0, TAPS - 1, 0))
        parts = [padded[:, :, tap : tap + positions] * self.weight[tap].unsqueeze(1) for tap in range(TAPS)]
        total = parts[0] + parts[1] + parts[2] + parts[3]
        if self.bias is not None:
            total = total + self.bias.view(x.shape[1], 1, -1)
        return F.silu(total)


class Decay(nn.Module):
    """A step size and a decay for each head and position: dt = softplus(w . x + b), log_decay = -exp(A) dt.

    (B, T, W) -> dt and log_decay, (B, H, T). It starts as in Mamba-2: exp(A) uniform from 1 to 16, and softplus(b) uniform in
    its logarithm from 0.001 to 0.1.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, heads, bias=False)
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        dt = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.bias = nn.Parameter(dt + (-(-dt).expm1()).log())  # the inverse of softplus

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        dt = F.softplus(self.project(x) + self.bias).transpose(1, 2)
        return dt, -self.log_rate.exp().unsqueeze(-1) * dt


def unit(x: Tensor) -> Tensor:
    """x / sqrt(|x|^2 + 1e-6) over the last dimension."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def split(x: Tensor, heads: int) -> Tensor:
    """(B, T, H ...) -> (B, H, T, ...)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
