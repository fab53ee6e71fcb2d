"""Where queries and keys stand: at their position ids, or key j at position j and query i of Q at K - Q + i, from 0."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench import AttentionSpec, Unsupported


def require_self_attention(name: str, spec: AttentionSpec) -> None:
    """Raise :class:`lgbench.Unsupported` in cross attention: a query stands at no position of the keys there."""
    if spec.cross_attention:
        raise Unsupported(f"{name} needs the distance of a query from a key, and cross attention has none")


def positions(q: Tensor, k: Tensor, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The positions of the queries (Q,) and of the keys (K,), in float64, for q (..., Q, D) and k (..., K, D).

    With position ids (B, K), the positions of each context, (B, 1, Q) and (B, 1, K).

    >>> [each.tolist() for each in positions(torch.zeros(2, 4), torch.zeros(3, 4))]
    [[1.0, 2.0], [0.0, 1.0, 2.0]]
    >>> positions(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 3, 4), torch.tensor([[5, 0, 5]]))[0].tolist()
    [[[5.0]]]
    """
    queries, keys = q.shape[-2], k.shape[-2]
    every = torch.arange(keys, device=q.device, dtype=torch.float64) if ids is None else ids[:, None].double()
    return every[..., keys - queries :], every
