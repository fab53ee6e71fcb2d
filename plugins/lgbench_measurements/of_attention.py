"""Probes of attention: where a query looks, and its output.

The functions are pure. Shapes: n contexts, H heads of D features, K keys.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor

from lgbench import AttentionInternals, Internals, Measurement, Reading, Source, Task


def entropy(weights: Tensor) -> Tensor:
    """The entropy in nats of weights over keys, divided by their sum: (..., K) -> (...).

    NaN where a weight is negative or all are zero, for then they are no distribution.
    """
    total = weights.sum(-1, keepdim=True)
    shares = weights / total
    found: Tensor = -torch.special.xlogy(shares, shares).sum(-1)
    return found.where((weights >= 0).all(-1) & (total > 0).squeeze(-1), torch.nan)


def effective_share(weights: Tensor) -> Tensor:
    """exp(entropy) / K, the share of the keys that a query looks at: (..., K) -> (...)."""
    return entropy(weights).exp() / weights.shape[-1]


def on_source(weights: Tensor, sources: Tensor) -> Tensor:
    """The weights on the positions that matter, (n, H, K), (n, T) bool -> (n, H); NaN for a context without such a position.

    Keys stand at the first positions where they are fewer, and at the last keys where they are more.
    """
    keys, positions = weights.shape[-1], sources.shape[-1]
    weights, sources = weights[..., max(0, keys - positions) :], sources[:, :keys]
    return (weights * sources[:, None]).sum(-1).where(sources.any(-1)[:, None], torch.nan)


def spread_over_contexts(output: Tensor) -> Tensor:
    """The standard deviation over contexts of each component, its mean over components: (n, ..., D) -> (...)."""
    if len(output) < 2:
        return torch.full(output.shape[1:-1], torch.nan, dtype=output.dtype)
    return output.std(0).mean(-1)


class AttentionProbe(Measurement):
    """A probe of attention modules. It reads every head of every layer that has one."""

    lower_is_better = None

    def source(self, task: Task) -> Source | None:
        return "internals"

    def of_internals(self, internals: Internals) -> Iterable[Reading]:
        for attention in internals.attentions:
            values = self.of(attention, internals)
            if values is not None:
                yield from attention.by_head(values)

    @abstractmethod
    def of(self, attention: AttentionInternals, internals: Internals) -> Tensor | None:
        """(n, H), or (H,) where a value is of all contexts; None where there is nothing to read."""


@final
class AttentionEntropy(AttentionProbe):
    """Entropy in nats of the weights of the query that answers, divided by their sum; mean over contexts.

    It is ln n where all n keys have the same weight, and 0 where one has all. Undefined where a weight is negative, as other
    attentions than softmax may have it.
    """

    name = "attention_entropy"
    label = "entropy"
    title = "entropy of the attention weights (nats)"
    range = (0.0, None)

    def of(self, attention: AttentionInternals, internals: Internals) -> Tensor | None:
        return None if attention.weights is None else entropy(attention.weights)


@final
class AttentionMax(AttentionProbe):
    """The largest weight of the query that answers; mean over contexts."""

    name = "attention_max"
    label = "max weight"
    title = "largest attention weight"
    range = (None, None)

    def of(self, attention: AttentionInternals, internals: Internals) -> Tensor | None:
        return None if attention.weights is None else attention.weights.amax(-1)


@final
class EffectiveKeys(AttentionProbe):
    """The share of the keys that the query that answers looks at, exp(entropy) / n for n keys; mean over contexts.

    It is 1 where all keys have the same weight, and 1 / n where one has all.
    """

    name = "effective_keys"
    label = "effective keys"
    title = "effective share of the keys"
    range = (0.0, 1.0)

    def of(self, attention: AttentionInternals, internals: Internals) -> Tensor | None:
        return None if attention.weights is None else effective_share(attention.weights)


@final
class AttentionOnSource(AttentionProbe):
    """The weight of the query that answers on the positions that matter, as the task says; mean over contexts.

    The largest item of max retrieval, the key that is asked for in dictionary lookup, the open bracket of Dyck that may be
    closed. Undefined in a context without such a position.
    """

    name = "attention_on_source"
    label = "on source"
    title = "attention weight on the source"
    range = (None, None)

    def source(self, task: Task) -> Source | None:
        return None if type(task).sources is Task.sources else "internals"

    def of(self, attention: AttentionInternals, internals: Internals) -> Tensor | None:
        if attention.weights is None or internals.sources is None:
            return None
        return on_source(attention.weights, internals.sources)


@final
class OutputStd(AttentionProbe):
    """Standard deviation over contexts of a fixed component of the output of a head, mean over its components.

    In theory N^(-1/2) for N independent tokens (arXiv 2504.02827, proposition 1): `lgbench plot --metric output_std --fit`
    fits the exponent. Before the output projection. Undefined for a single context.
    """

    name = "output_std"
    label = "output std"
    title = "std of the attention output over contexts"
    range = (0.0, None)

    def of(self, attention: AttentionInternals, internals: Internals) -> Tensor:
        return spread_over_contexts(attention.output)


PROBES: tuple[Measurement, ...] = (
    AttentionEntropy(),
    AttentionMax(),
    EffectiveKeys(),
    AttentionOnSource(),
    OutputStd(),
)
