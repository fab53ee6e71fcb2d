"""For attentions, and for architectures that use them: which keys a query sees, and scaled logits over them.

The Q queries are those of the last Q of K positions: query i sees the keys 0 to K - Q + i. A single query sees all.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from lgbench.contracts import Need


def visible(q: Tensor, k: Tensor) -> Tensor:
    """Which keys each query sees, (Q, K) bool, for q (..., Q, D) and k (..., K, D).

    >>> visible(torch.zeros(2, 4), torch.zeros(3, 4)).tolist()
    [[True, True, False], [True, True, True]]
    """
    queries, keys = q.shape[-2], k.shape[-2]
    return torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)


def visible_counts(q: Tensor, k: Tensor) -> Tensor:
    """How many keys each query sees, (Q, 1) in the type of q: n in the equations of attention, always at least 1.

    >>> visible_counts(torch.zeros(2, 4), torch.zeros(3, 4)).tolist()
    [[2.0], [3.0]]
    """
    queries, keys = q.shape[-2], k.shape[-2]
    return torch.arange(keys - queries + 1, keys + 1, device=q.device, dtype=q.dtype)[:, None]


def logits(q: Tensor, k: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """scale q . k + bias over all keys, also those that a query does not see: (B, H, Q, K).

    scale is that of the attention's place, 1 / sqrt(D) if none is given.
    """
    scores: Tensor = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores if bias is None else scores + bias


def masked_logits(q: Tensor, k: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """As :func:`logits`, and minus infinity where a query does not see the key."""
    return logits(q, k, bias, scale).masked_fill(~visible(q, k), -torch.inf)


def needed_inputs(needs: Collection[Need], query_input: Tensor, key_input: Tensor) -> dict[str, Tensor]:
    """The keyword arguments that an attention with these needs is called with, given both inputs of the sublayer."""
    inputs = {Need.QUERY_INPUT: query_input, Need.KEY_INPUT: key_input}
    return {need.value: tensor for need, tensor in inputs.items() if need in needs}
