"""Max retrieval: name the class of the item of highest priority."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Answers, Batch, Budget, Random, Signature, Task, Vectors

CLASSES = 10
DECIMALS = range(2, 10)
"""Decimals of written priorities: as few as do. Nine tell all float32 numbers from 0.1 to 1 apart."""


@final
class MaxRetrieval(Task):
    """A context is a set of items [priority ~ U(0, 1); one-hot class] and a query; the answer is one class.

    The query, last, is a random scalar in the place of the priority and no class. Of these three items the second wins:

    >>> inputs, distribution, _ = MaxRetrieval().sample(3, Random(1, seed=2))
    >>> MaxRetrieval().text(inputs[0])
    '0.39:4 0.66:6 0.54:2 ?'
    >>> distribution[0, 0].argmax().item()
    6

    Source: "softmax is not enough" (arXiv 2410.01104), appendix A, sets of 5 to 16 items in training; the argmax
    retrieval of "On Vanishing Variance" (arXiv 2504.02827).
    """

    name = family = "max-retrieval"
    version = 2
    signature = Signature(Vectors(1 + CLASSES), CLASSES, Answers.LAST)
    train_lengths = (5, 16)
    model = {"layers": 1, "heads": 1, "width": 128, "mlp": True}
    budgets = {
        "short": Budget(steps=2000, batch=128, lr=2e-3),
        "standard": Budget(steps=4000, batch=128, lr=2e-3),
        "long": Budget(batch=128, lr=1e-3),
        "paper": Budget(steps=100_000, batch=128, lr=1e-3),
    }

    def sample(self, length: int, random: Random) -> Batch:
        """Sets of `length` items and a query, (n, length + 1, 11), with p* (n, 1, 10)."""
        priority, kind = random.uniform(length + 1), random.integers(CLASSES, length)
        classes = torch.arange(CLASSES, dtype=torch.float32, device=random.device)
        inputs = torch.zeros(random.n, length + 1, 1 + CLASSES, device=random.device)
        inputs[..., 0] = priority
        torch.eq(kind[..., None].float(), classes, out=inputs[:, :length, 1:])
        best = priority[:, :length].argmax(-1, keepdim=True)
        return Batch(inputs, (kind.gather(1, best)[..., None] == classes).float())

    def reference(self, context: Tensor) -> Sequence[float]:
        _, *label = max(context[:-1].tolist(), key=itemgetter(0))  # of equal priorities the first
        return [float(number) for number in label]

    def sources(self, inputs: Tensor) -> Tensor:
        """The item of highest priority."""
        items = inputs[:, :-1, 0]
        return F.pad(items == items.amax(-1, keepdim=True), (0, 1))

    def context(self, text: str) -> Tensor:
        """As `text` writes it. The query's own priority, which decides nothing, is 0.5."""
        *items, query = text.split() or [""]
        found = [re.fullmatch(r"(\d*\.?\d+):(\d)", item) for item in items]
        if query != "?" or not items or not all(found):
            raise ValueError(
                "it reads items as priority:class, with classes from 0 to 9, and the query, as in '0.39:4 0.66:6 ?'"
            )
        rows = [[float(item[1]), *(float(kind == int(item[2])) for kind in range(CLASSES))] for item in found if item]
        if not all(0 <= row[0] <= 1 for row in rows):
            raise ValueError("priorities are from 0 to 1, as in '0.39:4 0.66:6 ?'")
        return torch.tensor([*rows, [0.5, *[0.0] * CLASSES]])

    def text(self, inputs: Tensor) -> str:
        """Items as priority:class, with decimals that tell the highest priority from the next; the query as a question mark."""
        priorities, classes = inputs[:-1, 0].tolist(), inputs[:-1, 1:].argmax(-1).tolist()
        highest = sorted(priorities)[-2:]
        decimals = next(
            (n for n in DECIMALS if len({f"{priority:.{n}f}" for priority in highest}) == len(highest)), DECIMALS[-1]
        )
        items = [f"{priority:.{decimals}f}:{kind}" for priority, kind in zip(priorities, classes, strict=True)]
        return " ".join([*items, "?"])
