"""AdamW, as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor

from lgbench import Optimizer, State, Unsupported, Weights, hookimpl


@final
@dataclass(frozen=True)
class AdamW(Optimizer):
    """AdamW (arXiv 1711.05101), as torch.optim.AdamW with its defaults.

    m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2,
    w <- (1 - lr decay) w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
    """

    name: str = "adamw"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def configured(self, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Self:
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1 and epsilon > 0):
            raise Unsupported(f"beta1 and beta2 must be in [0, 1) and epsilon above 0, got {beta1}, {beta2} and {epsilon}")
        return type(self)(self.name, beta1, beta2, epsilon)

    # Written out: each model of a population has a learning rate of its own, and one program makes the whole step.
    def start(self, weights: Weights) -> State:
        return {part: {name: torch.zeros_like(w) for name, w in weights.items()} for part in ("mean", "square")}

    def update(
        self, state: State, weights: Weights, gradients: Weights, lr: Weights, decay: Weights, step: Tensor
    ) -> tuple[State, Weights]:
        new: State = {"mean": {}, "square": {}}
        updated: Weights = {}
        for name, weight in weights.items():
            gradient = gradients[name]
            # On copies, in place: torch then compiles the same arithmetic, to the bit, as for the usual update in place.
            mean = state["mean"][name].clone().lerp_(gradient, 1 - self.beta1)
            square = state["square"][name].clone().mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
            mean_bias, square_bias = ((1 - beta**step).to(gradient.dtype) for beta in (self.beta1, self.beta2))
            spread = (square / square_bias).sqrt_().add_(self.epsilon)
            updated[name] = weight.clone().mul_(1 - lr[name] * decay[name]).sub_(lr[name] / mean_bias * (mean / spread))
            new["mean"][name], new["square"][name] = mean, square
        return new, updated


@hookimpl
def lgbench_optimizers() -> Iterable[Optimizer]:
    return [AdamW()]
