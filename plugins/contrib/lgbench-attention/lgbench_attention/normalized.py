"""Normalized attention pooling: logits standardized, not exponentiated."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench.attending import logits, visible, visible_counts


class NormalizedAttentionPooling(nn.Module):
    """LayerNorm((g (z - mean z) / std z + b) v), mean and standard deviation over the visible keys, g and b per head."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.scale = spec.scale
        self.gain = nn.Parameter(torch.ones(spec.heads))
        self.shift = nn.Parameter(torch.zeros(spec.heads))
        self.norm = nn.LayerNorm(spec.heads * spec.head_dim)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        unseen, n = ~visible(q, k), visible_counts(q, k)
        scores = logits(q, k, bias, self.scale).masked_fill(unseen, 0.0)
        centred = (scores - scores.sum(-1, keepdim=True) / n).masked_fill(unseen, 0.0)
        variance = centred.square().sum(-1, keepdim=True) / n
        # Under the root, so that the gradient of a single key, whose variance is 0, is finite.
        weights = self.gain[:, None, None] * centred * (variance + 1e-6).rsqrt() + self.shift[:, None, None]
        mixed = weights.masked_fill(unseen, 0.0) @ v
        by_query = mixed.transpose(1, 2)  # (B, Q, H, D)
        normed: Tensor = self.norm(by_query.flatten(2)).reshape(by_query.shape)
        return normed.transpose(1, 2)


@final
class NormalizedPooling(Attention):
    """NAP: weights g (z - mean z) / std z + b, one g and b per head (arXiv 2005.09561), then LayerNorm.

    As in the published code, g begins at 1 and b at 0, and the LayerNorm has gain and bias and goes over the features of all
    heads, before the output projection. Our choices: the GELU that follows in the published code is left out, since it belongs
    to that architecture. The published code adds 0.001 to the standard deviation; here its square is added to the variance.
    """

    name = "nap"

    def build(self, spec: AttentionSpec) -> NormalizedAttentionPooling:
        return NormalizedAttentionPooling(spec)
