"""Differential attention: the difference of two softmaxes."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from lgbench import Attention, Place, Unsupported
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

    def __init__(self, place: Place, lambda_0: float) -> None:
        super().__init__()
        self.lambda_0 = lambda_0
        in_first = torch.arange(place.head_dim) % 4 < 2
        self.register_buffer("first_half", in_first.float())
        first = int(in_first.sum())
        second = place.head_dim - first
        # Each half has the scale that a head of its dimension would have.
        self.scales = (1.0, 1.0) if place.plain else (first**-0.5, second**-0.5)
        self.lambda_q1, self.lambda_k1 = small(first), small(first)
        self.lambda_q2, self.lambda_k2 = small(second), small(second)
        self.norm = nn.RMSNorm(place.head_dim, eps=1e-5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, asking: Tensor, bias: Tensor | None) -> Tensor:
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
    are dealt two at a time, (0, 1) to the first half, (2, 3) to the second and so on, so that a rotary code turns each half
    with the frequencies of a head of its size, which the published code does by turning halves as heads; where D is no
    multiple of 4 the first half has up to two more. And the position code's bias is added to both logits.
    """

    name = "differential"

    def build(self, place: Place) -> nn.Module:
        if place.head_dim < 3:
            raise Unsupported(
                f"differential attention deals a head's features to two halves in pairs: {place.head_dim} are too few"
            )
        return DifferentialAttention(place, 0.8 - 0.6 * math.exp(-0.3 * (place.layer - 1)))
