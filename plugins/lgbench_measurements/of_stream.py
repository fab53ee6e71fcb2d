"""Probes of the residual stream and of the logits.

The functions are pure. Shapes: n contexts, V classes, W the width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lgbench import Internals, Measurement, Reading, Role, Source, SublayerInternals, Task


def gap(logits: Tensor, distribution: Tensor) -> Tensor:
    """The smallest logit of a legal token (p* > 0) minus the largest of an illegal one: (n, V), (n, V) -> (n,).

    NaN where every token is legal.
    """
    legal = distribution > 0
    difference = logits.masked_fill(~legal, torch.inf).amin(-1) - logits.masked_fill(legal, -torch.inf).amax(-1)
    return difference.where(~legal.all(-1), torch.nan)


def separation(logits: Tensor, distribution: Tensor) -> Tensor:
    """The mean logit of the legal tokens (p* > 0) minus that of the illegal ones: (n, V), (n, V) -> (n,).

    NaN where every token is legal.
    """
    legal = distribution > 0
    of_legal, of_illegal = (logits.masked_fill(~each, 0).sum(-1) / each.sum(-1) for each in (legal, ~legal))
    difference: Tensor = of_legal - of_illegal
    return difference


def root_mean_square(x: Tensor) -> Tensor:
    """(n, W) -> (n,)."""
    return x.square().mean(-1).sqrt()


def relative_update(sublayer: SublayerInternals) -> Tensor | None:
    """|update| / |stream before it|, (n,); None where there is no stream."""
    if sublayer.before is None:
        return None
    ratio: Tensor = torch.linalg.vector_norm(sublayer.update, dim=-1) / torch.linalg.vector_norm(sublayer.before, dim=-1)
    return ratio


@final
@dataclass(frozen=True)
class LogitProbe(Measurement):
    """How far the logits of legal tokens stand above those of illegal ones. Undefined where every token is legal."""

    name: str
    label: str
    title: str
    read: Callable[[Tensor, Tensor], Tensor]
    """Of logits and p*, both (n, V): (n,)."""
    about: str
    range = (None, None)
    lower_is_better = None

    def source(self, task: Task) -> Source | None:
        return "internals"

    def of_internals(self, internals: Internals) -> Iterable[Reading]:
        if internals.distribution is not None:
            yield Reading(self.read(internals.logits, internals.distribution))


@final
@dataclass(frozen=True)
class SublayerProbe(Measurement):
    """A probe of the sublayer of one role in each layer that has an attention."""

    name: str
    label: str
    title: str
    read: Callable[[SublayerInternals], Tensor | None]
    """(n,); None where there is nothing to read."""
    about: str
    role: Role = "attention"
    range: tuple[float | None, float | None] = (0.0, None)
    lower_is_better = None

    def source(self, task: Task) -> Source | None:
        return "internals"

    def of_internals(self, internals: Internals) -> Iterator[Reading]:
        attended = {attention.layer for attention in internals.attentions}
        for sublayer in internals.sublayers:
            if sublayer.role == self.role and sublayer.layer in attended:
                values = self.read(sublayer)
                if values is not None:
                    yield Reading(values, sublayer.layer)


@final
class ResidualNorm(Measurement):
    """Euclidean norm of the residual stream after each layer, its last sublayer included; mean over contexts."""

    name = "residual_norm"
    label = "stream norm"
    title = "norm of the residual stream"
    lower_is_better = None
    range = (0.0, None)

    def source(self, task: Task) -> Source | None:
        return "internals"

    def of_internals(self, internals: Internals) -> Iterable[Reading]:
        last = {sublayer.layer: sublayer for sublayer in internals.sublayers if sublayer.before is not None}
        for layer, sublayer in last.items():
            yield Reading(torch.linalg.vector_norm(sublayer.after, dim=-1), layer)


PROBES: tuple[Measurement, ...] = (
    SublayerProbe(
        "output_mean_global",
        "output mean",
        "mean over the features of the attention output",
        lambda sublayer: sublayer.update.mean(-1),
        "Mean over the features of what a layer's attention adds to the residual stream, norms included; mean over contexts. "
        "Its drift with the length is figure 3 of arXiv 2504.02827. Without a residual connection, of the layer's output.",
        range=(None, None),
    ),
    SublayerProbe(
        "output_var_global",
        "output variance",
        "variance over the features of the attention output",
        lambda sublayer: sublayer.update.var(-1, correction=0),
        "Variance over the features of what a layer's attention adds to the residual stream, norms included; mean over "
        "contexts. Its drift with the length is figure 3 of arXiv 2504.02827. Without a residual connection, of the layer's "
        "output.",
    ),
    LogitProbe(
        "logit_gap",
        "logit gap",
        "gap between legal and illegal logits",
        gap,
        "Smallest logit of a legal token (p* > 0) minus the largest of an illegal one; mean over contexts. Below 0, some "
        "illegal token is more probable than some legal one. Undefined where every token is legal.",
    ),
    LogitProbe(
        "logit_separation",
        "logit separation",
        "separation of legal and illegal logits",
        separation,
        "Mean logit of the legal tokens (p* > 0) minus that of the illegal ones; mean over contexts. On set complement with "
        "constant attention it falls like 1/s with the number of tokens s without a norm, and like 1/sqrt(s) with one, and is "
        "equal to the gap (arXiv 2510.08341). Undefined where every token is legal.",
    ),
    ResidualNorm(),
    SublayerProbe(
        "update_ratio",
        "update ratio",
        "relative update by attention",
        relative_update,
        "Norm of what a layer's attention adds to the residual stream, norms included, relative to that of the stream before "
        "it; mean over contexts.",
    ),
    SublayerProbe(
        "mlp_update_ratio",
        "MLP update ratio",
        "relative update by the MLP",
        relative_update,
        "Norm of what a layer's MLP adds to the residual stream, norms included, relative to that of the stream before it; "
        "mean over contexts.",
        role="mlp",
    ),
    SublayerProbe(
        "norm_input_rms",
        "norm input",
        "root mean square of a norm's input",
        lambda sublayer: None if sublayer.norm_input is None else root_mean_square(sublayer.norm_input),
        "Root mean square over the features of what the last norm of a layer's attention gets: what RMSNorm divides by. In "
        "pre-norm it is the one before the attention, in peri-norm that on its output, in post-norm that on the sum; mean over "
        "contexts.",
    ),
)
