"""The training curve: the loss and the norm of the gradient at a few dozen steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

POINTS = 50
"""How many points of the training curve are kept, at most."""


@dataclass(frozen=True)
class Curve:
    """A training curve. A point covers the steps since the point before."""

    steps: list[int]
    loss: Tensor
    """(points, P): mean over the covered steps, in nats."""
    gradient_norm: Tensor
    """(points, P): the largest norm over the covered steps, so that a spike is not averaged away."""


NO_CURVE = Curve([], torch.empty(0, 1), torch.empty(0, 1))
"""Of a model that was not trained here."""


def curve_steps(steps: int) -> list[int]:
    """The steps of a training at which its curve has points."""
    return sorted({max(1, round(steps * (i + 1) / POINTS)) for i in range(POINTS)})
