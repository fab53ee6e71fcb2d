"""RWKV-7's time mixing: a delta rule with a decay and a learning rate for each feature."""

from __future__ import annotations

import math
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench_linear.generalized_delta_rule import generalized_delta_rule
from lgbench_linear.layers import joined, split, unit
from lgbench_linear.recurrence import NEEDS, Recurrence, require_self_attention

RANK = 32
"""The inner width of the gates, if the residual stream is not narrower: the smallest that the published code has."""


class Shifted(nn.Module):
    """x + mu * (the x of the position before - x), (..., T, C) -> the same shape: the token shift. mu (C,) starts at 1/2."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.full((features,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, 0))[..., :-1, :]
        return x + self.share * (before - x)


class Gate(nn.Module):
    """B f(A x') + b for the shifted x', with A and B of low rank: (B, T, W) -> the same shape."""

    def __init__(self, width: int, inner: nn.Module, bias: Tensor | None = None) -> None:
        super().__init__()
        rank = min(width, RANK)
        self.shift, self.inner = Shifted(width), inner
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.up(self.inner(self.down(self.shift(x))))
        return gate if self.bias is None else gate + self.bias


@final
class Rwkv7Module(Recurrence):
    """g * (LayerNorm(S^T r) + (r . (rho * k)) v), S <- (diag(w) - (a * kappa) kappa^T) S + k v^T."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.heads, width = spec.heads, spec.width
        self.shift = Shifted(3 * width)
        self.decay = Gate(width, nn.Tanh(), torch.linspace(-6.5, -1.5, width))
        self.rate = Gate(width, nn.Identity(), torch.zeros(width))
        self.gate = Gate(width, nn.Sigmoid())
        self.removed = nn.Parameter(torch.full((width,), 0.85))
        self.rated = nn.Parameter(torch.ones(width))
        self.bonus = nn.Parameter(torch.zeros(width))
        self.norm_gain, self.norm_bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        r, k, v = self.shift(torch.cat([joined(q), joined(k), joined(v)], -1)).chunk(3, -1)
        log_decay = -math.exp(-0.5) * self.decay(x).sigmoid()
        a = self.rate(x).sigmoid()
        removed, k = k * self.removed, k * (1 + (a - 1) * self.rated)
        r, log_decay, removed, a, k, v, rho = (split(y, self.heads) for y in (r, log_decay, removed, a, k, v, self.bonus.expand_as(k)))
        mixed = generalized_delta_rule(r, log_decay, unit(removed), a, k, v)
        normed = joined(F.layer_norm(mixed, (v.shape[-1],), eps=64e-5)) * self.norm_gain + self.norm_bias
        bonus = (r * rho * k).sum(-1, keepdim=True) * v
        return split(self.gate(x) * (normed + joined(bonus)), self.heads)


@final
class Rwkv7(Attention):
    """The time mixing of RWKV-7 (arXiv 2503.14456): S <- (diag(w) - (a * kappa) kappa^T) S + k v^T, from r, k and v."""

    name = "rwkv-7"
    needs = NEEDS

    def build(self, spec: AttentionSpec) -> Rwkv7Module:
        require_self_attention(self.name, spec)
        return Rwkv7Module(spec)
