"""Soundness of a model's answers: finite, and independent of later inputs. Boards rank no entry with unsound answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench.contracts import LOOKS_AHEAD, NOT_FINITE


class Score(NamedTuple):
    """One number: `value` is over `n` answers, strings or contexts, None where it is not defined."""

    weights: str
    metric: str
    length: int
    value: float | None
    n: int
    layer: int | None = None
    """Of a probe; None for a number of the whole model."""
    head: int | None = None
    """Of a probe; None for a number of the whole layer."""


VERSION = 1
"""Of the rows that say whether answers are sound. Raise it whenever a verdict could change."""

REASONS = {
    LOOKS_AHEAD: "its answers change with what comes after them",
    NOT_FINITE: "some of its answers are not finite",
}
"""Why an entry is not ranked."""


def reasons(scores: Iterable[Score], diverged: bool) -> list[str]:
    """A sentence for each reason why a run is not ranked. A training that diverged is flagged for that alone."""
    found: dict[str, list[str]] = {}
    for score in scores:
        if score.metric in REASONS and score.value and not (diverged and score.metric == NOT_FINITE):
            found.setdefault(score.metric, []).append(score.weights)
    return [f"{REASONS[metric]} (weights: {', '.join(dict.fromkeys(own))})" for metric, own in found.items()]


class NotFinite(NamedTuple):
    """How many answers of one length are not finite."""

    weights: str
    length: int
    share: float | None
    """None where no answer counts."""
    answers: int
    """Answers that count."""


class FiniteAnswers:
    """Counts answers by weight variant and length. Nothing waits for the device before :meth:`found`."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[Tensor]] = defaultdict(list)

    def add(self, weights: str, length: int, finite: Tensor, counts: Tensor | None = None) -> None:
        """Answers of one length: whether each is finite, (n, A), and how much each counts, (n, A); None for all alike."""
        counted = torch.ones_like(finite) if counts is None else counts.to(finite.device) > 0
        self._counts[weights, length].append(torch.stack([(~finite & counted).sum(), counted.sum()]))

    def found(self) -> Iterator[NotFinite]:
        """The counts by weight variant and length, in the order in which these were added first."""
        for (weights, length), counts in self._counts.items():
            wrong, answers = torch.stack(counts).sum(0).tolist()
            yield NotFinite(weights, length, wrong / answers if answers else None, answers)
