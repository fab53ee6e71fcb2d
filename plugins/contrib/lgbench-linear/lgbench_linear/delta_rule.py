"""The delta rule in chunks, for DeltaNet, DeltaProduct and gated DeltaNet (arXiv 2406.06484, 2502.10297, 2412.06464)."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench_linear.chunks import decays, in_chunks, joined


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None = None) -> Tensor:
    """Every position takes n steps, which change a state S of D x D numbers, and then reads it.

    Step s, with a_s = exp(log_decay_s):    S <- a_s (I - beta_s k_s k_s^T) S + beta_s k_s v_s^T
    A position, after its last step:        o = S^T q

    S is zero at first. q (B, H, T, D), k and v (B, H, n T, D), beta and log_decay (B, H, n T) -> o (B, H, T, D). log_decay is
    at most 0, and None is 0.

    In a chunk that begins with the state S_0, with g_s the sum of log_decay up to step s, step s adds k_s u_s^T. So afterwards
    S = exp(g_s) S_0 + sum_(r <= s) exp(g_s - g_r) k_r u_r^T, where u depends on what earlier steps added:

        u_s = beta_s (v_s - exp(g_s) S_0^T k_s - sum_(r < s) exp(g_s - g_r) (k_s . k_r) u_r)

    These are triangular equations in u, the WY form of a product of Householder matrices.
    """
    steps = k.shape[2] // q.shape[2]
    inputs = (q, k, v, beta) if log_decay is None else (q, k, v, beta, log_decay)
    mixed: list[Tensor] = []
    state = None
    for chunk in in_chunks(*inputs):
        out, state = _chunk(state, steps, *chunk)
        mixed.append(out)
    return joined(mixed)


def _chunk(
    state: Tensor | None, steps: int, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What the positions of a chunk read, and the state after them, (B, H, D, D). No state is one of zeros."""
    step = torch.arange(k.shape[2], device=k.device)
    taken = step < steps * torch.arange(1, q.shape[2] + 1, device=q.device).unsqueeze(-1)
    beta = beta.unsqueeze(-1)
    among, asked = (beta * k) @ k.mT, q @ k.mT
    k_in, q_in, k_out, kept = k, q, k, torch.ones_like(beta[:, :, -1:])
    if log_decay is None:
        asked = asked.masked_fill(~taken, 0)
    else:
        g = log_decay.cumsum(-1)
        g_read, g_last = g[..., steps - 1 :: steps], g[..., -1:]
        among, asked = among * decays(g, g, step < step.unsqueeze(-1)), asked * decays(g_read, g, taken)
        k_in, q_in = g.exp().unsqueeze(-1) * k, g_read.exp().unsqueeze(-1) * q
        k_out, kept = (g_last - g).exp().unsqueeze(-1) * k, g_last.exp().unsqueeze(-1)
    if state is None:
        u = _solved(among, beta * v)
        return asked @ u, k_out.mT @ u
    u = _solved(among, beta * (v - k_in @ state))
    return q_in @ state + asked @ u, kept * state + k_out.mT @ u


def _solved(among: Tensor, right: Tensor) -> Tensor:
    """u with u + among u = right, of whose entries those below the diagonal count."""
    u: Tensor = torch.linalg.solve_triangular(among, right, upper=False, unitriangular=True)
    return u
