"""Position codes that rotate queries and keys. m is the position, D the head's features, i counts pairs of features."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from lgbench import AttentionSpec, Position, Unsupported
from lgbench_positions.absolute import angles, cos_and_sin
from lgbench_positions.standing import positions as standing
from lgbench_positions.standing import require_self_attention

SCALE_BASE = 512
"""The number of positions over which xPos fades by one factor zeta, as published."""
GAMMA = 0.4
"""The larger, the less the pairs of xPos fade, as published."""
MAX_POSITIONS = 30_000
"""Beyond some 35,000 positions the factors of xPos leave the range of float32."""


def even(features: int) -> int:
    """How many of the features belong to a pair."""
    return features - features % 2


def rotated(x: Tensor, angle: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """Features (2i, 2i + 1) of x (..., T, D) rotated by angle (..., T, i) and stretched by scale (T, i); an odd one stays."""
    paired = even(x.shape[-1])
    cos, sin = (part.to(x.dtype) for part in cos_and_sin(angle, scale))
    first, second = x[..., 0:paired:2], x[..., 1:paired:2]
    pairs = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
    return torch.cat((pairs, x[..., paired:]), dim=-1)


class Rotation(nn.Module):
    """Queries and keys rotated by the angles of their positions."""

    def forward(self, q: Tensor, k: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """q (B, H, Q, D), k (B, H, K, D), position ids (B, K) -> the shapes of q and k."""
        queries, keys = standing(q, k, positions)
        features = even(q.shape[-1])
        return rotated(q, angles(queries, features)), rotated(k, angles(keys, features))


class FadingRotation(nn.Module):
    """Queries and keys rotated and stretched so that their product fades with the distance."""

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q (B, H, Q, D), k (B, H, K, D) -> the same shapes. Raises ValueError for more than MAX_POSITIONS."""
        queries, keys = standing(q, k)
        if len(keys) > MAX_POSITIONS:
            raise ValueError(f"xpos works up to {MAX_POSITIONS} positions in float32, and the input has {len(keys)}")
        return self._rotated(q, queries, 1), self._rotated(k, keys, -1)

    def _rotated(self, x: Tensor, at: Tensor, sign: int) -> Tensor:
        features = even(x.shape[-1])
        pairs = torch.arange(0, features, 2, device=x.device, dtype=at.dtype)
        zeta = (pairs / features + GAMMA) / (1 + GAMMA)
        return rotated(x, angles(at, features), zeta ** (sign * at[:, None] / SCALE_BASE))


def require_a_pair(name: str, spec: AttentionSpec) -> None:
    """Raise :class:`lgbench.Unsupported` where there is nothing to rotate."""
    if spec.head_dim < 2:
        raise Unsupported(f"{name} rotates pairs of features, and a head here has {spec.head_dim}")


@final
class Rope(Position):
    """Rotary position embedding: queries and keys rotated by their positions (arXiv 2104.09864, equations 14 and 15).

    Features (2i, 2i + 1) of a query or a key at position m are rotated by m theta_i, theta_i = 10000^(-2i / D), so a logit
    depends on positions through their difference alone. Our choice: where D is odd, the last feature stays as it is, and D - 1
    stands for D.
    """

    name = "rope"
    reads_positions = True

    def rotate(self, spec: AttentionSpec) -> Rotation:
        require_self_attention(self.name, spec)
        require_a_pair(self.name, spec)
        return Rotation()


@final
class XPos(Position):
    """Extrapolatable rotary embedding: RoPE whose logits fade with the distance (arXiv 2212.10554, algorithm 1).

    RoPE, and pair i of a query at m multiplied by zeta_i^(m / 512), of a key at n by zeta_i^(-n / 512), with
    zeta_i = (2i / D + 0.4) / 1.4. Their product is zeta_i^((m - n) / 512), at most 1 where n <= m. Our choices: an odd D as
    in RoPE, and its last feature does not fade; attention sees all keys, without the paper's windows in evaluation. Inputs of
    more than 30,000 positions are refused, because float32 cannot hold the two factors there.
    """

    name = "xpos"

    def rotate(self, spec: AttentionSpec) -> FadingRotation:
        require_self_attention(self.name, spec)
        require_a_pair(self.name, spec)
        return FadingRotation()
