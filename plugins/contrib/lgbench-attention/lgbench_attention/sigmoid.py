"""Sigmoid attention: every weight by itself."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench.attending import logits, visible, visible_counts


class SigmoidAttention(nn.Module):
    """sigmoid(z - ln n) v over the visible keys."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        weights = (logits(q, k, bias, self.scale) - visible_counts(q, k).log()).sigmoid()
        return weights.masked_fill(~visible(q, k), 0.0) @ v


@final
class Sigmoid(Attention):
    """sigmoid(z + b) in place of softmax, b = -ln n (arXiv 2409.04431).

    The paper's n is the length of the sequence. Ours is the number of keys that the query sees, so that no position depends on
    later ones.
    """

    name = "sigmoid"

    def build(self, spec: AttentionSpec) -> SigmoidAttention:
        return SigmoidAttention(spec.scale)
