"""Random numbers for models in training, supplied by the harness."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Noise(nn.Module):
    """Uniform numbers in [0, 1) of a fixed shape, drawn anew by the harness before every training step.

    Only the seed, the step and the module's name in the model determine the numbers, so a seed's result depends neither on its
    population nor on interruptions. In evaluation the numbers mean nothing, and a model must not use them.
    """

    value: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("value", torch.full(shape, 0.5))

    def forward(self) -> Tensor:
        """Numbers of the current step."""
        return self.value
