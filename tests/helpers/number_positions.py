"""Position codes that count within numbers, as plugins that read token ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lgbench import AttentionSpec, Position, Unsupported

SEPARATOR = 2
"""Token id of the separator; all other ids are digits."""
ROWS = 5
"""Rows of the learned tables."""
SLOPE = 0.7


def places(tokens: Tensor) -> Tensor:
    """The place of each digit in its number, from 1; 0 for a separator: (B, K) -> (B, K)."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    separators = torch.where(tokens == SEPARATOR, at, -1)
    return at - separators.cummax(-1).values


class Table(nn.Module):
    """x + a learned row for the place of the token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(ROWS, width))

    def forward(self, x: Tensor, *, tokens: Tensor) -> Tensor:
        return x + self.rows[places(tokens).clamp(max=ROWS - 1)]


class Rotation(nn.Module):
    """Queries and keys rotated by the places of their tokens, in pairs of features."""

    def forward(self, q: Tensor, k: Tensor, *, tokens: Tensor) -> tuple[Tensor, Tensor]:
        at = places(tokens)[:, None, :, None]  # (B, 1, K, 1)
        return self.rotated(q, at[:, :, -q.shape[-2] :]), self.rotated(k, at)

    @staticmethod
    def rotated(x: Tensor, at: Tensor) -> Tensor:
        angle = at * 100 ** (-torch.arange(0, x.shape[-1], 2, device=x.device) / x.shape[-1])
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Distance(nn.Module):
    """-SLOPE times the number of separators after the key up to the query, the same for all heads: (B, 1, Q, K)."""

    def forward(self, q: Tensor, k: Tensor, *, tokens: Tensor) -> Tensor:
        passed = (tokens == SEPARATOR).cumsum(-1).to(q.dtype)[:, None]
        return -SLOPE * (passed[..., -q.shape[-2] :, None] - passed[..., None, :])


@dataclass(frozen=True)
class ByNumber(Position):
    """Positions within numbers: Abacus embeddings (arXiv 2405.17399) and position coupling (arXiv 2405.20671)."""

    name: str
    acts: tuple[str, ...]
    reads_tokens = True

    def embed(self, width: int, positions: int) -> nn.Module | None:
        return Table(width) if "embed" in self.acts else None

    def rotate(self, spec: AttentionSpec) -> nn.Module | None:
        if "rotate" in self.acts and spec.head_dim % 2:
            raise Unsupported(f"{self.name} rotates pairs of features, and a head here has {spec.head_dim}")
        return Rotation() if "rotate" in self.acts else None

    def bias(self, spec: AttentionSpec) -> nn.Module | None:
        return Distance() if "bias" in self.acts else None
