"""Soundness of a model's answers: finite, and independent of later inputs. Boards rank no entry with unsound answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench.contracts import LOOKS_AHEAD, NOT_FINITE


class Score(NamedTuple):
    """Number of a model: `value` over `n` answers, strings or contexts; None where undefined."""

    weights: str
    metric: str
    length: int
    value: float | None
    n: int
    layer: int | None = None
    """Layer of a probe; None for the whole model."""
    head: int | None = None
    """Head of a probe; None for the whole layer."""


VERSION = 1
"""Version of the soundness rows. Raise it whenever a verdict could change."""

REASONS = {
    LOOKS_AHEAD: "its answers change with what comes after them",
    NOT_FINITE: "some of its answers are not finite",
}
"""Reason for an unranked entry, by metric."""


def reasons(scores: Iterable[Score], diverged: bool) -> list[str]:
    """Sentences with the reasons for an unranked run.

    A diverged training is not flagged a second time for infinite or NaN answers.
    """
    found: dict[str, list[str]] = {}
    for score in scores:
        if score.metric in REASONS and score.value and not (diverged and score.metric == NOT_FINITE):
            found.setdefault(score.metric, []).append(score.weights)
    return [f"{REASONS[metric]} (weights: {', '.join(dict.fromkeys(own))})" for metric, own in found.items()]


class NotFinite(NamedTuple):
    """Share of answers of one length with infinite or NaN logits."""

    weights: str
    length: int
    share: float | None
    """None without any counting answer."""
    answers: int
    """Number of counting answers."""


class FiniteAnswers:
    """Counter of answers by weight variant and length. The device is synchronized in :meth:`found` alone."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[Tensor]] = defaultdict(list)

    def add(self, weights: str, length: int, finite: Tensor, counts: Tensor | None = None) -> None:
        """Add answers of one length: finiteness, (n, A), and weight of each answer, (n, A), or None for equal weights."""
        counted = torch.ones_like(finite) if counts is None else counts.to(finite.device) > 0
        self._counts[weights, length].append(torch.stack([(~finite & counted).sum(), counted.sum()]))

    def found(self) -> Iterator[NotFinite]:
        """Counts by weight variant and length, in the order of their first addition."""
        for (weights, length), counts in self._counts.items():
            wrong, answers = torch.stack(counts).sum(0).tolist()
            yield NotFinite(weights, length, wrong / answers if answers else None, answers)
