"""Measurements: numbers computed from a trained model and the exact answers.

Shapes: n contexts or strings, A answers for each context, V classes, L symbols of a string.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from lgbench.contracts.insides import Insides, Reading
from lgbench.contracts.tasks import Task

if TYPE_CHECKING:
    from torch import Tensor

Source = Literal["contexts", "strings", "insides"]
"""The data that a measurement is computed from: predictions on contexts, scores of whole strings, or the insides of a model.
One that is computed from insides is a probe, and is measured where `lgbench run --probe` asks for it."""


@dataclass(frozen=True)
class Predictions:
    """A model's logits and the right answers. logits: (n, A, V). distribution: p*, (n, A, V)."""

    logits: Tensor
    distribution: Tensor

    @cached_property
    def probability(self) -> Tensor:
        """The model's distribution, (n, A, V) float64: the softmax of the logits."""
        return self.logits.double().softmax(-1)


class StringScores(NamedTuple):
    """A model's scores of whole strings, members and non-members of a language.

    log_probability: (n, L + 1) float64, the log probability of each symbol after those before it, the end of the string last.
    is_member: (n,) bool.
    """

    log_probability: Tensor
    is_member: Tensor


class Measurement(ABC):
    """Metric or probe, measured at every tested length.

    Each run file contains its description, so boards, plots, the page and submissions need no plugin.
    """

    name: str
    """Lower-case letters, digits and underscores; see :data:`lgbench.contracts.names.METRIC_NAME`."""
    about: str = ""
    """One sentence, where the class's docstring does not describe this object."""
    version: int = 1
    """Raise it whenever any value could change. Boards never average over versions."""
    label: str
    """A short title for columns and small plots, such as "TVD"."""
    title: str
    """The title of an axis, such as "total variation distance (TVD)"."""
    lower_is_better: bool | None
    """None where no value is better than another. No board ranks entries by such a measurement."""
    range: tuple[float | None, float | None]
    """The least and the greatest possible value; None where there is none."""
    worst: float | None = None
    """The value of an answer that is not finite, as a diverged model gives it. None for a probe, which leaves it out."""
    threshold: float | None = None
    """The effective length is the longest length up to which the mean is better than this; None for no effective length."""
    landmark: tuple[float, str] | None = None
    """A value to compare with and its name, such as (0.5, "chance"), which plots draw as a dashed line."""
    partial: bool = False
    """Whether it is undefined for some contexts. `of_contexts` returns NaN for those, and they are left out of the mean."""

    def source(self, task: Task) -> Source | None:
        """The data that it is computed from on this task; None where it is not defined for the task."""
        return "contexts"

    def of_contexts(self, predictions: Predictions) -> Tensor:
        """Value of each answer, (n, A) float64.

        For probabilities that are not finite, the harness writes `worst`, unless the measurement is `partial`.
        """
        raise NotImplementedError(f"{self.name} is not computed from contexts")

    def of_strings(self, scores: StringScores) -> Tensor:
        """Value over all strings, a tensor without dimensions."""
        raise NotImplementedError(f"{self.name} is not computed from strings")

    def of_insides(self, insides: Insides) -> Iterable[Reading]:
        """Readings at one length: one per layer and head, or one of the whole model.

        A model without the observed component gives no reading. Readings of the same layer and head are averaged.
        """
        raise NotImplementedError(f"{self.name} is not computed from insides")

    def chance(self, distribution: Tensor, test: Tensor) -> Tensor | None:
        """Values of the context-free baseline, the best prediction that ignores the context: (n, V), (m, V) -> (m,) float64.

        `distribution` and `test` are independent samples of p* at one length. The prediction is fitted to the first and
        measured on the second. None for a measurement without a known baseline.
        """
        return None
