"""One training step of a population as a function of tensors alone: gradients, AdamW, the schedule, what the curve is made of.

Nothing here waits for the device, so a step can be compiled and captured whole. N counts the parameters of one model, P the
models. P = 1 is not a special case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from lgbench.contracts import Weights
from lgbench.errors import first_line
from lgbench.experiment import Experiment

MOMENTUM, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8
"""AdamW's beta_1, beta_2 and epsilon, as everywhere."""


class Moving(NamedTuple):
    """What a training step changes, in place. N counts the parameters of one model, P the models."""

    weights: Tensor
    """(P, N), every trained parameter of a model in one row."""
    mean: Tensor
    """(P, N): AdamW's first moment."""
    square: Tensor
    """(P, N): AdamW's second moment."""
    step: Tensor
    """(1,) float64: steps done. Not 0-dimensional: compiled code reads such a number before it is changed."""
    loss_sum: Tensor
    """(P,) since the latest point of the curve."""
    largest_norm: Tensor
    """(P,) of the gradient since the latest point of the curve."""
    diverged: Tensor
    """(P,) int64: the first step with a loss that is not finite, 0 if none."""


@dataclass(frozen=True)
class Layout:
    """Where each parameter of a model stands in its row of N numbers."""

    names: list[str]
    shapes: list[torch.Size]
    dtypes: list[torch.dtype]

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    def of_one(self, row: Tensor) -> Weights:
        """(N,) -> the parameters of one model, in the types that it has."""
        parts = zip(self.names, torch.split(row, self.sizes), self.shapes, self.dtypes, strict=True)
        return {name: part.view(shape).to(dtype) for name, part, shape, dtype in parts}

    def of_all(self, rows: Tensor) -> Weights:
        """(P, N) -> views with a leading P."""
        parts = zip(self.names, torch.split(rows, self.sizes, 1), self.shapes, strict=True)
        return {name: part.view(len(rows), *shape) for name, part, shape in parts}


class Rates(NamedTuple):
    """What may differ between the models of a population: peak learning rate, decay of each weight, steps of warmup."""

    lr: Tensor
    """(P, 1) float64."""
    decay: Tensor
    """(P, N): matrices are decayed, gains and biases are not."""
    warmup: Tensor
    """(P, 1) float64."""

    @classmethod
    def of(cls, experiments: Sequence[Experiment], layout: Layout, rows: Tensor) -> Rates:
        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=rows.device)[:, None]

        settings = [experiment.train for experiment in experiments]
        matrix = torch.cat([torch.full((shape.numel(),), float(len(shape) >= 2)) for shape in layout.shapes]).to(rows)
        return cls(
            column([train.lr for train in settings]),
            column([train.weight_decay for train in settings]).to(rows.dtype) * matrix,
            column([max(1, round(train.warmup * train.steps)) for train in settings]),
        )


def step_of(skeleton: nn.Module, layout: Layout, steps: int, say: Callable[[str], None]) -> Callable[..., Tensor]:
    """The training step as a function of tensors alone."""

    def loss(row: Tensor, buffers: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
        logits = functional_call(skeleton, layout.of_one(row) | buffers, (inputs,))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    gradients = _Gradients(grad_and_value(loss), say)

    def step(moving: Moving, buffers: Weights, rates: Rates, inputs: Tensor, targets: Tensor) -> Tensor:
        # The fused attention kernels have no batching rule for their backward pass, so vmap would run them one by one.
        with sdpa_kernel(SDPBackend.MATH):
            gradient, loss_of_each = gradients(moving.weights, buffers, inputs, targets)
        losses: Tensor = loss_of_each.to(moving.loss_sum.dtype)
        moving.step.add_(1)
        # Linear warmup, then linear decay to 0 after the last step.
        left = (steps - moving.step + 1) / (steps - rates.warmup).clamp(min=1)
        lr = rates.lr * torch.minimum(moving.step / rates.warmup, left)
        _adamw(moving, gradient, lr.to(gradient.dtype), rates.decay)
        moving.loss_sum.add_(losses)
        moving.largest_norm.copy_(torch.maximum(moving.largest_norm, gradient.square().sum(1).sqrt()))
        fresh = (moving.diverged == 0) & ~losses.isfinite()
        moving.diverged.copy_(torch.where(fresh, moving.step.long(), moving.diverged))
        return losses

    return step


class _Gradients:
    """The gradient and the loss of every model: in one stack, or model by model where vmap cannot take them."""

    def __init__(self, of_one: Callable[..., tuple[Tensor, Tensor]], say: Callable[[str], None]) -> None:
        self.of_one, self.say = of_one, say
        self.of_all: Callable[..., tuple[Tensor, Tensor]] = vmap(of_one)

    def __call__(self, weights: Tensor, buffers: Weights, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """weights (P, N), buffers, inputs and targets with a leading P -> gradients (P, N), losses (P,)."""
        try:
            return self.of_all(weights, buffers, inputs, targets)
        except RuntimeError as error:
            if self.of_all == self._one_by_one or torch.compiler.is_compiling():
                raise
            found = self._one_by_one(weights, buffers, inputs, targets)  # what is broken at all raises here
            self.of_all = self._one_by_one
            reason = first_line(error)
            self.say(f"vmap cannot take this model, so its seeds are trained one after the other, which is slower: {reason}")
            return found

    def _one_by_one(self, weights: Tensor, buffers: Weights, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        each = [
            self.of_one(row, {name: t[index] for name, t in buffers.items()}, inputs[index], targets[index])
            for index, row in enumerate(weights)
        ]
        gradients, losses = zip(*each, strict=True)
        return torch.stack(gradients), torch.stack(losses)


def _adamw(moving: Moving, gradient: Tensor, lr: Tensor, decay: Tensor) -> None:
    """torch.optim.AdamW's update, with a learning rate and a weight decay for every model: lr (P, 1), decay (P, N)."""
    moving.mean.lerp_(gradient, 1 - MOMENTUM)
    moving.square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
    mean_bias, square_bias = ((1 - beta**moving.step).to(gradient.dtype) for beta in (MOMENTUM, SQUARE_DECAY))
    spread = (moving.square / square_bias).sqrt_().add_(EPSILON)
    moving.weights.mul_(1 - lr * decay).sub_(lr / mean_bias * (moving.mean / spread))
