"""Where queries and keys stand: key j at position j, query i of Q at position K - Q + i, the first position being 0."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench import AttentionSpec, Unsupported


def require_self_attention(name: str, spec: AttentionSpec) -> None:
    """Raise :class:`lgbench.Unsupported` in cross attention: a query stands at no position of the keys there."""
    if spec.cross_attention:
        raise Unsupported(f"{name} needs the distance of a query from a key, and cross attention has none")


def positions(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of the queries (Q,) and of the keys (K,), in float64, for q (..., Q, D) and k (..., K, D).

    >>> [each.tolist() for each in positions(torch.zeros(2, 4), torch.zeros(3, 4))]
    [[1.0, 2.0], [0.0, 1.0, 2.0]]
    """
    queries, keys = q.shape[-2], k.shape[-2]
    every = torch.arange(keys, device=q.device, dtype=torch.float64)
    return every[keys - queries :], every
