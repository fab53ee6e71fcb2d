"""Insides: what the harness saw of a model while it read contexts of one length.

Everything is of one position of each context, the one that answers for the whole length, which sees all K keys.

Shapes: n contexts, T positions, V classes, W the width of the residual stream; in attention H heads of D features, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lgbench.contracts.models import Role

if TYPE_CHECKING:
    from torch import Tensor


class Reading(NamedTuple):
    """One number of a probe at one length."""

    value: Tensor
    """(n,), one value for each context, of which the harness takes the mean, NaN where it is not defined; or one value of all
    contexts, without dimensions."""
    layer: int | None = None
    """Counted from 1; None for a number of the whole model."""
    head: int | None = None
    """Counted from 1; None for a number of the whole layer."""


@dataclass(frozen=True)
class AttentionInside:
    """An attention module, as :meth:`lgbench.Attention.build` made it, and one query."""

    layer: int
    """Counted from 1."""
    output: Tensor
    """The output of the query, before the output projection: (n, H, D) float64."""
    weights: Tensor | None
    """The query's weight on each key, (n, H, K) float64; None where the output is not linear in the values."""

    def by_head(self, values: Tensor) -> Iterator[Reading]:
        """A reading for each head, from (n, H), or from (H,) where a value is of all contexts."""
        return (Reading(own, self.layer, head) for head, own in enumerate(values.unbind(-1), 1))


@dataclass(frozen=True)
class SublayerInside:
    """A sublayer with its norms, as :meth:`lgbench.NormScheme.residual` or :meth:`lgbench.NormScheme.output` places them."""

    role: Role
    layer: int
    """Counted from 1."""
    before: Tensor | None
    """The residual stream before it, (n, W) float64; None in architectures without a residual connection."""
    after: Tensor
    """The residual stream after it, or its output where there is no residual connection: (n, W) float64."""
    norm_input: Tensor | None
    """The input of the last norm that acts on it, (n, W) float64; None where there is no norm."""

    @property
    def update(self) -> Tensor:
        """The update that it adds to the residual stream; its output where there is no residual connection: (n, W) float64."""
        return self.after if self.before is None else self.after - self.before


@dataclass(frozen=True)
class Insides:
    """The data that a probe is computed from."""

    length: int
    inputs: Tensor
    """The contexts up to the position: (n, T), or (n, T, F)."""
    logits: Tensor
    """(n, V) float64."""
    distribution: Tensor | None
    """p*, (n, V) float64; None where nobody knows it, as for text."""
    sources: Tensor | None
    """The positions that matter for the answer, (n, T) bool, as :meth:`lgbench.Task.sources` says; None where it does not, or
    where there is no task."""
    attentions: Sequence[AttentionInside]
    """In the order in which they ran; none where the architecture takes no attention as a part."""
    sublayers: Sequence[SublayerInside]
    """In the order in which they ran."""
    final: Tensor | None
    """The final hidden state before the norm that stands before the logits, (n, W) float64; None where there is no place for
    such a norm."""
