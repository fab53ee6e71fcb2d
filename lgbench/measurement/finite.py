"""Counting the answers whose logits are not finite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


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
        """What was counted, in the order in which it was added first."""
        for (weights, length), counts in self._counts.items():
            wrong, answers = torch.stack(counts).sum(0).tolist()
            yield NotFinite(weights, length, wrong / answers if answers else None, answers)
