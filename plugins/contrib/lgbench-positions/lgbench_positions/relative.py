"""Position codes that add a bias to the logits. i is the position of a query, j of a key, H the number of heads."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from lgbench import AttentionSpec, Position
from lgbench_positions.standing import positions as standing
from lgbench_positions.standing import require_self_attention

FIRE_HIDDEN = 32
FIRE_LOG_SCALE = 0.1
"""The initial c, as in the code published with FIRE."""
FIRE_THRESHOLD = 1 / 4
"""The initial L, as a share of the training positions."""
FIRE_EPSILON = 1e-6
"""Guards against dividing by zero where c or L is zero."""
FIRE_HIDDEN_AT_ONCE = 2**24
"""Hidden features of f that are computed at a time, which bounds memory."""


def distances(q: Tensor, k: Tensor, ids: Tensor | None = None) -> Tensor:
    """i - j in the type of q, (Q, K), and 0 where a query does not see the key; with position ids abs(i - j), (B, 1, Q, K)."""
    queries, keys = standing(q, k, ids)
    apart = queries[..., :, None] - keys[..., None, :]
    return (apart.clamp(min=0) if ids is None else apart.abs()).to(q.dtype)


def slopes(heads: int) -> list[float]:
    """2^(-8h / H) for h = 1 ... H where H is a power of two.

    Otherwise the slopes of the next lower power of two, then every other slope of the next higher one, from its first.

    >>> slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    lower = 2 ** int(math.log2(heads))
    own = [2 ** (-8 * h / lower) for h in range(1, lower + 1)]
    return own if heads == lower else own + slopes(2 * lower)[::2][: heads - lower]


class LinearPenalty(nn.Module):
    """-slope_h (i - j)."""

    slope: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slope", torch.tensor(slopes(heads)))

    def forward(self, q: Tensor, k: Tensor, positions: Tensor | None = None) -> Tensor:
        """q (B, H, Q, D), k (B, H, K, D) -> (H, Q, K), or (B, H, Q, K) with position ids (B, K)."""
        return -self.slope[:, None, None] * distances(q, k, positions)


@final
class Alibi(Position):
    """Attention with linear biases: a penalty that grows with the distance (arXiv 2108.12409, section 3).

    Head h of H adds -2^(-8h / H) (i - j) to its logits; for an H that is no power of two the slopes are interpolated as in
    the paper's code. The bias comes after logits are divided by sqrt(D), as published. A single head has the slope 2^-8. With
    position ids, whose order is free, the penalty is on abs(i - j): our choice.
    """

    name = "alibi"
    reads_positions = True

    def bias(self, spec: AttentionSpec) -> LinearPenalty:
        require_self_attention(self.name, spec)
        return LinearPenalty(spec.heads)


class Interpolation(nn.Module):
    """f(psi(i - j) / psi(max(L, i))) with a value of f for each head."""

    def __init__(self, heads: int, threshold: float) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(FIRE_LOG_SCALE))
        self.first_threshold = threshold
        # Relative to the initial L, as in the published code: a step of an optimizer is tiny on the scale of L.
        self.threshold_ratio = nn.Parameter(torch.tensor(1.0))
        self.bias_of = nn.Sequential(nn.Linear(1, FIRE_HIDDEN), nn.ReLU(), nn.Linear(FIRE_HIDDEN, heads))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """q (B, H, Q, D), k (B, H, K, D) -> (H, Q, K)."""
        argument = self.argument(q, k)[..., None]
        rows = max(1, FIRE_HIDDEN_AT_ONCE // (FIRE_HIDDEN * argument.shape[1]))
        bias = torch.cat([self.bias_of(some) for some in torch.split(argument, rows)])  # (Q, K, H)
        return bias.movedim(-1, 0)

    def argument(self, q: Tensor, k: Tensor) -> Tensor:
        """psi(i - j) / psi(max(L, i)) in [0, 1], (Q, K); 0 where a query does not see the key."""
        scale, threshold = self.log_scale.abs(), (self.first_threshold * self.threshold_ratio).abs()
        queries = standing(q, k)[0].to(q.dtype)
        furthest = torch.log1p(scale * torch.maximum(queries, threshold))
        return torch.log1p(scale * distances(q, k)) / (furthest[:, None] + FIRE_EPSILON)


@final
class Fire(Position):
    """Functional interpolation: a learned function of the distance as a share of the longest (arXiv 2310.04418, section 3).

    Head h adds f_h(psi(i - j) / psi(max(L, i))), psi(x) = log(c x + 1), f an MLP 1 -> 32 -> H with ReLU. c and L are learned
    and used by their absolute value. As in the published code, c starts at 0.1, and 1e-6 is added to the denominator. Every
    layer has its own c, L and f. Our choice: L starts at a quarter of the training positions, at least at 1 (in the paper at
    512 of 2048 positions).
    """

    name = "fire"

    def bias(self, spec: AttentionSpec) -> Interpolation:
        require_self_attention(self.name, spec)
        return Interpolation(spec.heads, max(1.0, FIRE_THRESHOLD * spec.train_keys))
