"""Causal masks and scaled logits, for attentions and for architectures with attention.

The Q queries belong to the last Q of K positions: query i sees the keys 0 to K - Q + i. A single query sees all keys.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from lgbench.contracts import Need


def visible(q: Tensor, k: Tensor) -> Tensor:
    """Causal mask of the visible keys per query, (Q, K) bool, for q (..., Q, D) and k (..., K, D).

    >>> visible(torch.zeros(2, 4), torch.zeros(3, 4)).tolist()
    [[True, True, False], [True, True, True]]
    """
    queries, keys = q.shape[-2], k.shape[-2]
    return torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)


def visible_counts(q: Tensor, k: Tensor) -> Tensor:
    """Number of visible keys per query, (Q, 1) with the dtype of q: n in the equations of attention, at least 1.

    >>> visible_counts(torch.zeros(2, 4), torch.zeros(3, 4)).tolist()
    [[2.0], [3.0]]
    """
    queries, keys = q.shape[-2], k.shape[-2]
    return torch.arange(keys - queries + 1, keys + 1, device=q.device, dtype=q.dtype)[:, None]


def logits(q: Tensor, k: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Logits scale q . k + bias over all keys, masked or not: (B, H, Q, K).

    The default scale is 1 / sqrt(D).
    """
    scores: Tensor = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores if bias is None else scores + bias


def masked_logits(q: Tensor, k: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Result of :func:`logits`, with minus infinity for masked keys."""
    return logits(q, k, bias, scale).masked_fill(~visible(q, k), -torch.inf)


def needed_inputs(needs: Collection[Need], query_input: Tensor, key_input: Tensor) -> dict[str, Tensor]:
    """Keyword arguments for an attention with these needs, from both inputs of the sublayer."""
    inputs = {Need.QUERY_INPUT: query_input, Need.KEY_INPUT: key_input}
    return {need.value: tensor for need, tensor in inputs.items() if need in needs}
