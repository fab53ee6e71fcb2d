"""Sums with a decay for each head and position in chunks, for Mamba-2 and mLSTM (arXiv 2405.21060, 2405.04517)."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench_linear.chunks import decays, in_chunks, joined


def decayed_sum(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_weight: Tensor) -> tuple[Tensor, Tensor]:
    """o_t = S^T q_t after S <- exp(log_decay_t) S + exp(log_weight_t) k_t v_t^T, from S = 0.

    q and k (B, H, T, D), v (B, H, T, E), log_decay, at most 0, and log_weight (B, H, T) -> exp(-m) o (B, H, T, E), and m
    (B, H, T): the log of the largest factor of any k v^T in S, so that nothing overflows. m is 0 where all log_weight are.
    m has no gradient: it may be used where the result does not depend on it.
    """
    mixed: list[Tensor] = []
    scales: list[Tensor] = []
    carried = None
    for chunk in in_chunks(q, k, v, log_decay, log_weight):
        out, m, carried = _chunk(carried, *chunk)
        mixed.append(out)
        scales.append(m)
    return joined(mixed), joined(scales)


State = tuple[Tensor, Tensor]
"""exp(-m) S, (B, H, D, E), and m, (B, H, 1)."""


def _chunk(
    carried: State | None, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_weight: Tensor
) -> tuple[Tensor, Tensor, State]:
    """What the positions of a chunk read, their m, and what the next chunk begins with."""
    g = log_decay.cumsum(-1)
    position = torch.arange(q.shape[2], device=q.device)
    seen = position <= position.unsqueeze(-1)
    since = log_weight - g  # the log of what k v^T has in S is g_i + since_j
    m = g + since.detach().cummax(-1).values
    if carried is not None:
        state, m_before = carried
        m = torch.maximum(m, g + m_before)
    m = m.detach()
    out = (q @ k.mT * decays(g - m, -since, seen)) @ v
    g_last, m_last = g[..., -1:], m[..., -1:]
    after = ((g_last - m_last + since).exp().unsqueeze(-1) * k).mT @ v
    if carried is not None:
        out = out + (g + m_before - m).exp().unsqueeze(-1) * (q @ state)
        after = after + (g_last + m_before - m_last).exp().unsqueeze(-1) * state
    return out, m, (after, m_last)
