"""Stick-breaking attention: each key takes a share of the rest that later keys have left."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench.attending import logits, visible


class StickBreakingAttention(nn.Module):
    """A v with A_ij = sigmoid(z_ij) prod_{j < k < i} (1 - sigmoid(z_ik)) over the keys j before the query i, in log space."""

    def __init__(self, own_key: bool, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.own_key = own_key
        """Whether the last key that a query sees is that of its own position. The query then takes nothing of it."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        past = visible(q, k).tril(k.shape[-2] - q.shape[-2] - self.own_key)
        scores = logits(q, k, bias, self.scale)
        left = F.logsigmoid(-scores).masked_fill(~past, 0.0)[..., 1:]
        # Summed from the latest key on. A total minus a part would lose the rest of the nearest keys to rounding.
        left = F.pad(left.flip(-1).cumsum(-1).flip(-1), (0, 1))
        return (F.logsigmoid(scores) + left).masked_fill(~past, -torch.inf).exp() @ v


@final
class StickBreaking(Attention):
    """Stick-breaking attention (arXiv 2410.17980): the nearest key that wants a token has it.

    A_ij = sigmoid(z_ij) prod_{j < k < i} (1 - sigmoid(z_ik)), over the keys j before the query i.

    As published, a query sees only the keys before its own, so the first query takes nothing. A share that no key takes is
    lost. In cross attention a query sees all keys.
    """

    name = "stick-breaking"

    def build(self, spec: AttentionSpec) -> StickBreakingAttention:
        return StickBreakingAttention(own_key=not spec.cross_attention, scale=spec.scale)
