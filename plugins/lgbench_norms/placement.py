"""Norm schemes told by what stands in each of five places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

from torch import Tensor, nn

from lgbench import NormScheme, Role

Norm = Callable[[int], nn.Module]
"""Builds a normalization for a width."""


def nothing(dim: int) -> nn.Module:
    """The place stays empty."""
    return nn.Identity()


class Residual(nn.Module):
    """x <- total(x + after(sublayer(before(x)))), at the positions for which the sublayer answers."""

    def __init__(self, before: nn.Module, sublayer: nn.Module, after: nn.Module, total: nn.Module) -> None:
        super().__init__()
        self.before, self.sublayer, self.after, self.total = before, sublayer, after, total

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.after(self.sublayer(self.before(x)))
        total: Tensor = self.total(x[..., -change.shape[-2] :, :] + change)
        return total


@final
@dataclass(frozen=True)
class Placement(NormScheme):
    """A scheme by its five places: on the embedding, before a sublayer, on its output, on the sum, before the logits."""

    name: str
    about: str
    embedding: Norm = nothing
    before: Norm = nothing
    after: Mapping[Role, Norm] = field(default_factory=dict)
    total: Norm = nothing
    logits: Norm = nothing

    def embed(self, dim: int) -> nn.Module:
        return self.embedding(dim)

    def residual(self, dim: int, sublayer: nn.Module, role: Role) -> nn.Module:
        return Residual(self.before(dim), sublayer, self.after.get(role, nothing)(dim), self.total(dim))

    def output(self, dim: int, role: Role) -> nn.Module:
        return nn.Sequential(self.after.get(role, nothing)(dim), self.total(dim))

    def final(self, dim: int) -> nn.Module:
        return self.logits(dim)
