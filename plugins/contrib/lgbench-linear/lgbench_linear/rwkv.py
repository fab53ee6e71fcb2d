"""RWKV-7's time mixing: a delta rule with a decay and a learning rate for each feature."""

from __future__ import annotations

import math
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench_linear.generalized_delta_rule import generalized_delta_rule
from lgbench_linear.layers import split, unit
from lgbench_linear.recurrence import NEEDS, Recurrence, require_self_attention

RANK = 32
"""The inner width of the gates, if the residual stream is not narrower: the smallest that the published code has."""


def shifted(x: Tensor, share: Tensor) -> Tensor:
    """x + share * (the x of the position before - x), of (..., T, C), with zeros before the first: the token shift."""
    return x + share * (F.pad(x, (0, 0, 1, 0))[..., :-1, :] - x)


class Gate(nn.Module):
    """B f(A x') + b with the shifted x', and A and B of low rank: (B, T, W) -> (B, H, T, D)."""

    def __init__(self, spec: AttentionSpec, inner: nn.Module, bias: Tensor | None = None) -> None:
        super().__init__()
        rank = min(spec.width, RANK)
        self.heads, self.inner = spec.heads, inner
        self.share = nn.Parameter(torch.full((spec.width,), 0.5))
        self.down, self.up = nn.Linear(spec.width, rank, bias=False), nn.Linear(rank, spec.width, bias=False)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = split(self.up(self.inner(self.down(shifted(x, self.share)))), self.heads)
        return gate if self.bias is None else gate + self.bias.view(self.heads, 1, -1)


@final
class Rwkv7Module(Recurrence):
    """g * (LayerNorm(S^T r) + (r . (rho * k)) v), S <- (diag(w) - (a * kappa) kappa^T) S + k v^T."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.heads, width = spec.heads, spec.width
        self.share = nn.Parameter(torch.full((3 * width,), 0.5))
        self.decay = Gate(spec, nn.Tanh(), torch.linspace(-6.5, -1.5, width))
        self.rate = Gate(spec, nn.Identity(), torch.zeros(width))
        self.gate = Gate(spec, nn.Sigmoid())
        self.removed = nn.Parameter(torch.full((width,), 0.85))
        self.rated = nn.Parameter(torch.ones(width))
        self.bonus = nn.Parameter(torch.zeros(width))
        self.gain, self.offset = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        of_heads = [each.view(self.heads, 1, -1) for each in (self.removed, self.rated, self.bonus, self.gain, self.offset)]
        removed, rated, bonus, gain, offset = of_heads
        r, k, v = shifted(torch.cat([q, k, v], -1), self.share.view(self.heads, 1, -1)).chunk(3, -1)
        a = self.rate(x).sigmoid()
        log_decay = -math.exp(-0.5) * self.decay(x).sigmoid()
        kappa, k = unit(removed * k), k * (1 + (a - 1) * rated)
        mixed = generalized_delta_rule(r, log_decay, kappa, a, k, v)
        normed = gain * F.layer_norm(mixed, (v.shape[-1],), eps=64e-5) + offset
        gate: Tensor = self.gate(x)
        return gate * (normed + (r * bonus * k).sum(-1, keepdim=True) * v)


@final
class Rwkv7(Attention):
    """RWKV-7's time mixing (arXiv 2503.14456): S <- (diag(w) - (a * kappa) kappa^T) S + k v^T, o = LayerNorm(S^T r) + bonus.

    r, k and v come through the token shift. w = exp(-exp(-1/2) sigmoid(d)), a, and the output's gate g are low-rank functions
    of the shifted input; kappa is the unit vector of xi * k, and k becomes k * (1 + (a - 1) * alpha). The output is
    g * (LayerNorm(S^T r) + (r . (rho * k)) v). xi, alpha and rho are learned vectors.

    Our choices: it stands in the transformer, which projects r, k and v before the token shift, not after it, and has an MLP in
    place of the channel mixing. Values of the first layer are not added to those of others. All shares of the token shift start
    at 1/2, and gates as nn.Linear does, with inner widths of at most 32.
    """

    name = "rwkv-7"
    needs = NEEDS

    def build(self, spec: AttentionSpec) -> Rwkv7Module:
        require_self_attention(self.name, spec)
        return Rwkv7Module(spec)
