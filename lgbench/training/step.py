"""One training step of a population as a function of tensors alone: gradients, schedule, optimizer, sums for the curve.

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
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from lgbench.contracts import Optimizer, State, Weights
from lgbench.experiment.experiment import Experiment
from lgbench.training.gradients import Gradients
from lgbench.training.precision import computing


def counting(device: torch.device) -> torch.dtype:
    """The type of steps and learning rates: float64, but float32 for MPS, which has no wider one and counts to 2^24 in it."""
    return torch.float32 if device.type == "mps" else torch.float64


class TrainState(NamedTuple):
    """The tensors that a training step changes, in place."""

    weights: Tensor
    """(P, N), every trained parameter of a model in one row."""
    optimizer: State
    """The optimizer's state, such as moments."""
    step: Tensor
    """(1,) of :func:`counting`: steps done. Not 0-dimensional: compiled code reads such a number before it is changed."""
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
    """Settings in which the models of a population may differ: peak learning rate, decay of each weight, steps of warmup."""

    lr: Tensor
    """(P, 1) of :func:`counting`."""
    decay: Tensor
    """(P, N): parameters of two or more dimensions are decayed, such as matrices; gains and biases are not."""
    warmup: Tensor
    """(P, 1) of :func:`counting`."""
    steps: Tensor
    """(1,) of :func:`counting`: those of the whole training. A number would make another program for each."""

    @classmethod
    def of(cls, experiments: Sequence[Experiment], layout: Layout, rows: Tensor) -> Rates:
        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=counting(rows.device), device=rows.device)[:, None]

        settings = [experiment.train for experiment in experiments]
        matrix = torch.cat([torch.full((shape.numel(),), float(len(shape) >= 2)) for shape in layout.shapes]).to(rows)
        return cls(
            column([train.lr for train in settings]),
            column([train.weight_decay for train in settings]).to(rows.dtype) * matrix,
            column([max(1, round(train.warmup * train.steps)) for train in settings]),
            torch.full((1,), float(settings[0].steps), dtype=counting(rows.device), device=rows.device),
        )


def step_of(
    skeleton: nn.Module, layout: Layout, optimizer: Optimizer, precision: str, say: Callable[[str], None]
) -> Callable[..., Tensor]:
    """The training step as a function of tensors alone. `precision` is that of the model; the loss and all else is float32."""

    def loss(row: Tensor, buffers: Weights, inputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        with computing(precision, row.device):
            logits = functional_call(skeleton, {**layout.of_one(row), **buffers}, (inputs,)).flatten(0, 1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        # Targets are tokens (B, A), or distributions over them (B, A, V).
        right = targets.flatten(0, 1)
        if weights is None:
            return F.cross_entropy(logits, right)
        by_answer = F.cross_entropy(logits, right, reduction="none") * weights.flatten()
        return by_answer.sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)

    gradients = Gradients(loss, say)

    def step(state: TrainState, buffers: Weights, rates: Rates, *batch: Tensor) -> Tensor:
        # The fused attention kernels have no batching rule for their backward pass, so vmap would run them one by one.
        with sdpa_kernel(SDPBackend.MATH):
            gradient, loss_of_each = gradients(state.weights, buffers, *batch)
        losses: Tensor = loss_of_each.to(state.loss_sum.dtype)
        state.step.add_(1)
        # Linear warmup, then linear decay to 0 after the last step.
        left = (rates.steps - state.step + 1) / (rates.steps - rates.warmup).clamp(min=1)
        lr = rates.lr * torch.minimum(state.step / rates.warmup, left)
        _update(optimizer, layout, state, gradient, lr.to(gradient.dtype), rates.decay)
        state.loss_sum.add_(losses)
        state.largest_norm.copy_(torch.maximum(state.largest_norm, gradient.square().sum(1).sqrt()))
        fresh = (state.diverged == 0) & ~losses.isfinite()
        state.diverged.copy_(torch.where(fresh, state.step.long(), state.diverged))
        return losses

    return step


def views(optimizer: Optimizer, layout: Layout, rows: Tensor) -> Weights:
    """(P, N) as the optimizer wants it: as one tensor, or as each parameter's."""
    return {"all": rows} if optimizer.elementwise else layout.of_all(rows)


def overwrite(old: State, new: State) -> None:
    """Write new values into old tensors, all as if at once: a new value may be an old tensor that stands elsewhere."""
    ours = {id(tensor) for tensors in old.values() for tensor in tensors.values()}
    apart = {
        part: {name: tensor.clone() if id(tensor) in ours else tensor for name, tensor in tensors.items()}
        for part, tensors in new.items()
    }
    for part, tensors in apart.items():
        for name, tensor in tensors.items():
            old[part][name].copy_(tensor)


def _update(optimizer: Optimizer, layout: Layout, state: TrainState, gradient: Tensor, lr: Tensor, decay: Tensor) -> None:
    """One step of the optimizer: gradient (P, N), lr (P, 1), decay (P, N)."""
    weights, gradients, decays = (views(optimizer, layout, rows) for rows in (state.weights, gradient, decay))
    rates = {name: lr.view(-1, *[1] * (tensor.ndim - 1)) for name, tensor in weights.items()}
    found, updated = optimizer.update(state.optimizer, weights, gradients, rates, decays, state.step)
    overwrite({"weights": weights, **state.optimizer}, {"weights": updated, **found})
