"""The attention of T2R (arXiv 2103.13076): linear attention (arXiv 2006.16236) with learned features.

With phi(x) = relu(W x + b), W and b a head's own and shared by its queries and keys, query i takes

    sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)

of the keys j that it sees. That is a recurrent network with the state S <- S + phi(k_j) v_j^T, z <- z + phi(k_j), read as
phi(q_i)^T S / phi(q_i) . z; it is computed here over all pairs at once.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Unsupported
from lgbench.attending import visible

SMALLEST_TOTAL = 1e-6
"""A smaller sum of weights is replaced by this: a query without a common feature with any visible key takes zeros."""


class Features(nn.Module):
    """phi(x) = relu(W x + b), (B, H, T, D) -> (B, H, T, D), with W (H, D, D) and b (H, D) initialized as nn.Linear is."""

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__()
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(heads, dim, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(heads, dim).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        # Heads first, contexts and positions in one: a product over (B, H) would first repeat the weights for every context.
        by_head = x.transpose(0, 1)
        features = torch.baddbmm(self.bias.unsqueeze(-2), by_head.flatten(1, 2), self.weight.mT).relu()
        return features.view(by_head.shape).transpose(0, 1)


class LinearAttention(nn.Module):
    """Weights phi(q) . phi(k), divided by their sum over the visible keys."""

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__()
        self.features = Features(heads, dim)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        weights: Tensor = self.features(q) @ self.features(k).mT  # (B, H, Q, K)
        weights = weights.masked_fill(~visible(q, k), 0)
        return weights @ v / weights.sum(-1, keepdim=True).clamp(min=SMALLEST_TOTAL)


@final
class T2R(Attention):
    """Linear attention with features relu(W x + b) learned per head, shared by queries and keys (arXiv 2103.13076).

    With f(x) = relu(W x + b), query i takes sum_j f(q_i) . f(k_j) v_j / sum_j f(q_i) . f(k_j), over the keys j that it sees.

    Our choices: as many features as the head has dimensions; and training from scratch, where the paper puts the attention
    into a trained softmax transformer and continues to train it. There are no logits, so a position code that adds a bias to
    them, such as ALiBi, is refused. A position code that rotates queries and keys acts before the features.
    """

    name = "t2r"

    def build(self, spec: AttentionSpec) -> LinearAttention:
        if spec.has_bias:
            raise Unsupported("t2r has no logits to which a position code's bias could be added")
        return LinearAttention(spec.heads, spec.head_dim)
