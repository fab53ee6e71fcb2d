"""How a recurrence stands in the place of an attention."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from lgbench import AttentionSpec, Need, Unsupported

NEEDS = frozenset(Need)
"""A recurrence reads the queries of all positions, and its gates the sublayer's input."""


class Recurrence(nn.Module, ABC):
    """A recurrence over the positions, from queries, keys, values and the sublayer's input.

    It computes in float32 or wider in any case: its state sums up the rounding errors of all positions.
    """

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, query_input: Tensor, key_input: Tensor
    ) -> Tensor:
        """q, k and v (B, H, K, D), query_input (B, Q, W), key_input (B, K, W) -> (B, H, Q, D)."""
        with torch.autocast(q.device.type, enabled=False):
            wide = [x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v, key_input)]
            mixed = self.run(*wide)
        return mixed[:, :, -query_input.shape[1] :].to(q.dtype)

    @abstractmethod
    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        """q, k and v (B, H, T, D), x (B, T, W) -> (B, H, T, D)."""


def require_self_attention(name: str, spec: AttentionSpec) -> None:
    """Raises Unsupported where a recurrence cannot stand."""
    if spec.has_bias:
        raise Unsupported(f"{name} has no logits to which a position code's bias could be added")
    if spec.cross_attention:
        raise Unsupported(
            f"{name} reads keys and queries of the same positions, and cross attention has them of different ones"
        )
