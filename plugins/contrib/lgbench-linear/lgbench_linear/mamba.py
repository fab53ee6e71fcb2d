"""Mamba-2: the state-space model that is attention with a decay."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench_linear.decayed_sum import decayed_sum
from lgbench_linear.layers import Decay, ShortConvolution, split
from lgbench_linear.recurrence import NEEDS, Recurrence, require_self_attention


@final
class Mamba2Module(Recurrence):
    """RMSNorm((S^T q + d v) * silu(z)), S <- a S + dt k v^T."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.heads = spec.heads
        self.convolve = ShortConvolution(spec.heads, 3 * spec.head_dim, bias=True)
        self.decay = Decay(spec.width, spec.heads)
        self.skip = nn.Parameter(torch.ones(spec.heads))
        self.gate = nn.Linear(spec.width, spec.width, bias=False)
        self.gain = nn.Parameter(torch.ones(spec.width))

    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        q, k, v = self.convolve(torch.cat([q, k, v], -1)).chunk(3, -1)
        dt, log_decay = self.decay(x)
        mixed, _ = decayed_sum(q, k, dt.unsqueeze(-1) * v, log_decay, torch.zeros_like(dt))
        mixed = mixed + self.skip.view(-1, 1, 1) * v
        gated = mixed * F.silu(split(self.gate(x), self.heads))
        return self.gain.view(self.heads, 1, -1) * F.rms_norm(gated, (v.shape[-1],), eps=1e-5)


@final
class Mamba2(Attention):
    """The mixer of Mamba-2 (arXiv 2405.21060): S <- a S + dt k v^T, o = RMSNorm((S^T q + d v) * silu(z)).

    q, k and v, which the paper calls C, B and x, go through a short convolution and SiLU. dt = softplus(w . x + b), and
    a = exp(-exp(A) dt); A, b and d are learned for each head.

    Our choices: it stands in the transformer, with an MLP after it, so it is as wide as the residual stream, where the paper
    has twice that width and no MLP. Each head has its own k and q, with as many features as v. Dot products are not divided.
    """

    name = "mamba-2"
    needs = NEEDS

    def build(self, spec: AttentionSpec) -> Mamba2Module:
        require_self_attention(self.name, spec)
        return Mamba2Module(spec)
