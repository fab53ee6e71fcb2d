"""Position codes that turn queries and keys. m is the position, D the head's features, i counts pairs of features."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from lgbench import Place, Position, Unsupported
from lgbench_positions.absolute import angles
from lgbench_positions.standing import positions, require_queries_among_keys

SCALE_BASE = 512
"""Positions over which xPos fades by one factor zeta, as published."""
GAMMA = 0.4
"""How little the fastest pair of xPos fades, as published."""
MOST_POSITIONS = 30_000
"""Beyond some 35,000 what xPos multiplies queries and keys by leaves the range of float32."""


def even(features: int) -> int:
    """How many of the features belong to a pair."""
    return features - features % 2


def turned(x: Tensor, angle: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """Features (2i, 2i + 1) of x (..., T, D) rotated by angle (T, i) and stretched by scale (T, i); an odd one stays."""
    paired = even(x.shape[-1])
    cos, sin = ((part * scale).to(x.dtype) for part in (angle.cos(), angle.sin()))
    first, second = x[..., 0:paired:2], x[..., 1:paired:2]
    pairs = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
    return torch.cat((pairs, x[..., paired:]), dim=-1)


class Rotation(nn.Module):
    """Queries and keys rotated by the angles of their positions."""

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q (B, H, Q, D), k (B, H, K, D) -> the same shapes."""
        queries, keys = positions(q, k)
        features = even(q.shape[-1])
        return turned(q, angles(queries, features)), turned(k, angles(keys, features))


class FadingRotation(nn.Module):
    """Queries and keys rotated and stretched so that their product fades with the distance."""

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q (B, H, Q, D), k (B, H, K, D) -> the same shapes. Raises ValueError for more positions than float32 has room for."""
        queries, keys = positions(q, k)
        if len(keys) > MOST_POSITIONS:
            raise ValueError(f"xpos holds to {MOST_POSITIONS} positions in float32, and the input has {len(keys)}")
        return self._turned(q, queries, 1), self._turned(k, keys, -1)

    def _turned(self, x: Tensor, at: Tensor, sign: int) -> Tensor:
        features = even(x.shape[-1])
        pairs = torch.arange(0, features, 2, device=x.device, dtype=at.dtype)
        zeta = (pairs / features + GAMMA) / (1 + GAMMA)
        return turned(x, angles(at, features), zeta ** (sign * at[:, None] / SCALE_BASE))


def require_a_pair(name: str, place: Place) -> None:
    """Raise :class:`lgbench.Unsupported` where there is nothing to turn."""
    if place.head_dim < 2:
        raise Unsupported(f"{name} turns pairs of features, and a head here has {place.head_dim}")


@final
class Rope(Position):
    """Rotary position embedding: queries and keys rotated by their positions (arXiv 2104.09864, equations 14 and 15).

    Features (2i, 2i + 1) of a query or a key at position m are rotated by m theta_i, theta_i = 10000^(-2i / D), so that
    a logit depends on positions through their difference alone. Our choice: of an odd D the last feature is left as it is,
    and D - 1 stands for D.
    """

    name = "rope"

    def turn(self, place: Place) -> nn.Module:
        require_queries_among_keys(self.name, place)
        require_a_pair(self.name, place)
        return Rotation()


@final
class XPos(Position):
    """Extrapolatable rotary embedding: RoPE whose logits fade with the distance (arXiv 2212.10554, algorithm 1).

    RoPE, and pair i of a query at m multiplied by zeta_i^(m / 512), of a key at n by zeta_i^(-n / 512), with
    zeta_i = (2i / D + 0.4) / 1.4. The product has zeta_i^((m - n) / 512), at most 1 where n <= m. Our choices: an odd D as
    in RoPE, its last feature not fading; and attention sees all keys, without the paper's windows in evaluation. Inputs of more
    than 30,000 positions are refused, since float32 cannot hold the two factors there.
    """

    name = "xpos"

    def turn(self, place: Place) -> nn.Module:
        require_queries_among_keys(self.name, place)
        require_a_pair(self.name, place)
        return FadingRotation()
