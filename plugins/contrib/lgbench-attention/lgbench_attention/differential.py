"""Differential attention: the difference of two softmaxes."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Unsupported
from lgbench.attending import masked_logits


def small(dim: int) -> nn.Parameter:
    """A learned vector, normal with a standard deviation of 0.1 as published."""
    return nn.Parameter(0.1 * torch.randn(dim))


class DifferentialAttention(nn.Module):
    """(1 - lambda_0) RMSNorm((softmax(z1) - lambda softmax(z2)) v), lambda = exp(q1 . k1) - exp(q2 . k2) + lambda_0.

    The vectors q1, k1, q2, k2 and the gain of the norm are learned and the same for all heads. A half's logits are those of
    queries that are zero in the other half: to gather its features would take longer than to multiply by zeros.
    """

    first_half: Tensor

    def __init__(self, spec: AttentionSpec, lambda_0: float) -> None:
        super().__init__()
        self.lambda_0 = lambda_0
        in_first = torch.arange(spec.head_dim) % 4 < 2
        self.register_buffer("first_half", in_first.float())
        first = int(in_first.sum())
        second = spec.head_dim - first
        # Each half has the scale that a head of its dimension would have.
        self.scales = (1.0, 1.0) if spec.unscaled else (first**-0.5, second**-0.5)
        self.lambda_q1, self.lambda_k1 = small(first), small(first)
        self.lambda_q2, self.lambda_k2 = small(second), small(second)
        self.norm = nn.RMSNorm(spec.head_dim, eps=1e-5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        excess = (self.lambda_q1 * self.lambda_k1).sum().exp() - (self.lambda_q2 * self.lambda_k2).sum().exp()
        first = q * self.first_half
        signal, noise = (
            masked_logits(half, k, bias, scale).softmax(-1) for half, scale in zip((first, q - first), self.scales, strict=True)
        )
        mixed: Tensor = self.norm((signal - (excess + self.lambda_0) * noise) @ v)
        return (1 - self.lambda_0) * mixed


@final
class Differential(Attention):
    """Differential attention (arXiv 2410.05258), lambda_0 = 0.8 - 0.6 exp(-0.3 (layer - 1)).

    Queries and keys of a head are split in two halves, each with logits scaled by its own dimension. Our choices: features
    (0, 1) go to the first half, (2, 3) to the second and so on. So a rotary code gives the frequencies of a head to the halves
    in turn: with D a multiple of 4 the first rotates as a head of its size, and the second by 10000^(-2/D) of that; the
    published code rotates both as heads. Where D is no multiple of 4 the first half has up to two features more. The position
    code's bias is added to both logits.
    """

    name = "differential"

    def build(self, spec: AttentionSpec) -> DifferentialAttention:
        if spec.head_dim < 3:
            raise Unsupported(
                f"differential attention splits a head's features into two halves: it needs at least 3, got {spec.head_dim}"
            )
        return DifferentialAttention(spec, 0.8 - 0.6 * math.exp(-0.3 * (spec.layer - 1)))
