"""Measurements: numbers computed from a trained model and the exact answers.

Shapes: n contexts or strings, A answers for each context, V classes, L symbols of a string, T positions; within a model W, the
width of the residual stream, and in attention H heads of D features, K keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from lgbench.contracts.names import Named, Role
from lgbench.contracts.tasks import Task

if TYPE_CHECKING:
    from torch import Tensor

Source = Literal["contexts", "sequences", "strings", "internals"]
"""Data of a measurement: each answer by itself ("contexts"), all answers of a context together ("sequences"), scores of whole
strings, or the internals of a model ("internals").

A measurement of internals is a probe, and needs `lgbench run --probe`.
"""


@dataclass(frozen=True)
class Predictions:
    """Logits of a model and the right answers. logits: (n, A, V). distribution: p*, (n, A, V).

    weights: (n, A), the weights of :class:`lgbench.Batch`; None for equal weights.
    """

    logits: Tensor
    distribution: Tensor
    weights: Tensor | None = None

    @cached_property
    def probability(self) -> Tensor:
        """Distribution of the model, (n, A, V) float64: softmax of the logits."""
        return self.logits.double().softmax(-1)

    @cached_property
    def counts(self) -> Tensor:
        """Whether each answer counts, (n, A) bool: its weight is positive."""
        weights = self.logits.new_ones(self.logits.shape[:-1]) if self.weights is None else self.weights
        return weights > 0


class StringScores(NamedTuple):
    """Scores of whole strings by a model, members and non-members of a language.

    log_probability: (n, L + 1) float64, log probability of each symbol after the symbols before it, the end of the string last.
    is_member: (n,) bool.
    """

    log_probability: Tensor
    is_member: Tensor


class Reading(NamedTuple):
    """Value of a probe at one length."""

    value: Tensor
    """(n,), a value per context, NaN where undefined, of which the harness takes the mean; or a scalar tensor for all
    contexts."""
    layer: int | None = None
    """Layer from 1; None for a value of the whole model."""
    head: int | None = None
    """Head from 1; None for a value of the whole layer."""


@dataclass(frozen=True)
class AttentionInternals:
    """Attention module from :meth:`lgbench.Attention.build`, at one query."""

    layer: int
    """Layer from 1."""
    output: Tensor
    """Output of the query, before the output projection: (n, H, D) float64."""
    weights: Tensor | None
    """Attention weights of the query, (n, H, K) float64; None for an output that is not linear in the values."""

    def by_head(self, values: Tensor) -> Iterator[Reading]:
        """Reading of each head, from (n, H), or from (H,) for values over all contexts."""
        return (Reading(own, self.layer, head) for head, own in enumerate(values.unbind(-1), 1))


@dataclass(frozen=True)
class SublayerInternals:
    """Sublayer with its norms, as placed by :meth:`lgbench.NormScheme.residual` or :meth:`lgbench.NormScheme.output`."""

    role: Role
    layer: int
    """Layer from 1."""
    before: Tensor | None
    """Residual stream before the sublayer, (n, W) float64; None without a residual connection."""
    after: Tensor
    """Residual stream after the sublayer, or its output without a residual connection: (n, W) float64."""
    norm_input: Tensor | None
    """Input of the last norm in the sublayer, (n, W) float64; None without a norm."""

    @property
    def update(self) -> Tensor:
        """Update of the residual stream, or the output without a residual connection: (n, W) float64."""
        return self.after if self.before is None else self.after - self.before


@dataclass(frozen=True)
class Internals:
    """Internals of a model on contexts of one length, at the position of the answer for the whole length, which sees K keys."""

    length: int
    inputs: Tensor
    """Contexts up to the position: (n, T), or (n, T, F)."""
    logits: Tensor
    """(n, V) float64."""
    distribution: Tensor | None
    """p*, (n, V) float64; None if unknown, as for text."""
    sources: Tensor | None
    """Positions relevant to the answer, (n, T) bool, from :meth:`lgbench.Task.sources`; None without this information."""
    attentions: Sequence[AttentionInternals]
    """Attentions in the order of their execution; empty for an architecture without attention as a part."""
    sublayers: Sequence[SublayerInternals]
    """Sublayers in the order of their execution."""
    final: Tensor | None
    """Final hidden state before the norm in front of the logits, (n, W) float64; None without a place for such a norm."""


class Measurement(Named):
    """Metric or probe, measured at every tested length.

    Each run file contains its description, so boards, plots, the page and submissions need no plugin. All measurements read the
    same tensors: compute with operations that make new ones.
    """

    name: str
    """Lower-case letters, digits and underscores; see :data:`lgbench.contracts.names.METRIC_NAME`."""
    version: int = 1
    """Raise it whenever any value could change. Boards never average over versions."""
    label: str
    """Short title for columns and small plots, such as "TVD"."""
    title: str
    """Title of an axis, such as "total variation distance (TVD)"."""
    lower_is_better: bool | None
    """None if no value is better than another. No board ranks entries by such a measurement."""
    range: tuple[float | None, float | None]
    """Least and greatest possible value; None for no bound."""
    worst: float | None = None
    """Value of an answer that is not finite, as from a diverged model. None for a probe, which leaves such answers out."""
    threshold: float | None = None
    """Bound for the effective length, the longest length up to which the mean is better; None for no effective length."""
    landmark: tuple[float, str] | None = None
    """Value for comparison with its name, such as (0.5, "chance"): a dashed line in plots."""
    partial: bool = False
    """Whether some contexts have no value. `of_contexts` returns NaN for these contexts; the mean leaves them out."""

    def source(self, task: Task) -> Source | None:
        """Data of the measurement on a task; None if undefined for the task."""
        return "contexts"

    def of_contexts(self, predictions: Predictions) -> Tensor:
        """Value of each answer, (n, A) float64.

        For probabilities that are not finite, the harness writes `worst`, unless the measurement is `partial`.
        """
        raise NotImplementedError(f"{self.name} is not computed from contexts")

    def of_sequences(self, predictions: Predictions) -> Tensor:
        """Value of each context, (n,) float64, from its counted answers together, such as exact match.

        Defined for tasks that answer once or at marked positions: of an answer at every prefix, each has a length of its own.
        The harness writes `worst` for a context with a counted answer that is not finite, and leaves out contexts without a
        counted answer.
        """
        raise NotImplementedError(f"{self.name} is not computed from the answers of a context together")

    def of_strings(self, scores: StringScores) -> Tensor:
        """Value over all strings, a tensor without dimensions."""
        raise NotImplementedError(f"{self.name} is not computed from strings")

    def of_internals(self, internals: Internals) -> Iterable[Reading]:
        """Readings at one length: one per layer and head, or one of the whole model.

        A model without the observed component gives no reading. Readings of the same layer and head are averaged.
        """
        raise NotImplementedError(f"{self.name} is not computed from internals")

    def context_free(self, distribution: Tensor, test: Tensor) -> Tensor | None:
        """Values of the context-free baseline, the best prediction that ignores the context: (n, V), (m, V) -> (m,) float64.

        `distribution` and `test` are independent samples of p* at one length. The prediction is fitted to the first and
        measured on the second. None for a measurement without a known baseline.
        """
        return None
