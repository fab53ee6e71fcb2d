"""Norm schemes that are described by the norms in each of five places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

from torch import Tensor, nn

from lgbench import NormScheme, Role, SublayerSpec, TensorModule
from lgbench.chain import Chain

Norm = Callable[[int], TensorModule]
"""Builds a norm for a width."""


def nothing(width: int) -> TensorModule:
    """The place stays empty."""
    return nn.Identity()


class Residual(nn.Module):
    """x <- total(x + after(sublayer(before(x)))), at the positions for which the sublayer answers."""

    def __init__(self, before: TensorModule, sublayer: TensorModule, after: TensorModule, total: TensorModule) -> None:
        super().__init__()
        self.before, self.sublayer, self.after, self.total = before, sublayer, after, total

    def forward(self, x: Tensor) -> Tensor:
        change = self.after(self.sublayer(self.before(x)))
        return self.total(x[..., -change.shape[-2] :, :] + change)


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

    def embed(self, width: int) -> TensorModule:
        return self.embedding(width)

    def residual(self, spec: SublayerSpec, sublayer: TensorModule) -> Residual:
        width = spec.width
        return Residual(self.before(width), sublayer, self._after(spec)(width), self.total(width))

    def output(self, spec: SublayerSpec) -> Chain:
        return Chain(self._after(spec)(spec.width), self.total(spec.width))

    def final(self, width: int) -> TensorModule:
        return self.logits(width)

    def _after(self, spec: SublayerSpec) -> Norm:
        return self.after.get(spec.role, nothing)
