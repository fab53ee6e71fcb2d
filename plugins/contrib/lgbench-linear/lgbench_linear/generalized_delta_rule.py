"""The generalized delta rule of RWKV-7 in chunks (arXiv 2503.14456)."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench_linear.chunks import in_chunks, joined


def generalized_delta_rule(q: Tensor, log_decay: Tensor, removed: Tensor, a: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """o_t = S^T q_t after S <- (diag(w_t) - (a_t * r_t) r_t^T) S + k_t v_t^T, from S = 0, with w = exp(log_decay), r = removed.

    All (B, H, T, D), as the result. log_decay is from -1 to 0, so that no power of w of a chunk leaves float32.

    In a chunk that begins with the state S_0, with G_t the sum of log_decay up to t, S is

        exp(G_t) * (S_0 + sum_(j <= t) exp(-G_j) * (a_j * r_j) u_j^T + exp(-G_j) * k_j v_j^T),    u_t = -S_(t-1)^T r_t

    which are triangular equations in u.
    """
    mixed: list[Tensor] = []
    state = None
    for chunk in in_chunks(q, log_decay, removed, a * removed, k, v):
        out, state = _chunk(state, *chunk)
        mixed.append(out)
    return joined(mixed)


def _chunk(
    state: Tensor | None, q: Tensor, log_decay: Tensor, removed: Tensor, put: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """What the positions of a chunk read, and the state after them, (B, H, D, D). No state is one of zeros."""
    g = log_decay.cumsum(2)
    grown = (-g).exp()
    put, k, q = put * grown, k * grown, q * g.exp()
    removed = removed * (g - log_decay).exp()
    right = (removed @ k.mT).tril(-1) @ v
    right = right if state is None else right + removed @ state
    u = torch.linalg.solve_triangular(
        removed @ put.mT, -right, upper=False, unitriangular=True
    )  # reads what is below the diagonal
    out = (q @ put.mT).tril() @ u + (q @ k.mT).tril() @ v
    after = put.mT @ u + k.mT @ v
    if state is not None:
        out, after = out + q @ state, after + state
    return out, g[:, :, -1].exp().unsqueeze(-1) * after
