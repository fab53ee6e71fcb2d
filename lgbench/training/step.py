"""Training step of stacked models: gradient and loss in the fastest possible way, learning rate, and optimizer update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map

from lgbench.contracts import Optimizer, State, Weights
from lgbench.errors import first_line, lacks_memory
from lgbench.experiment.record import Training
from lgbench.training.models import answered

Loss = Callable[..., Tensor]
"""Loss of one model, (), from the weights and further arguments: tensors, or dicts and tuples of tensors."""
Of = Callable[..., tuple[Any, Tensor]]
"""From the arguments of :data:`Loss` to the gradient, in the structure of the weights, and the loss."""


class Gradients:
    """Gradients and losses (P,) of stacked models, from the arguments of :data:`Loss` with a leading P.

    Takes the first way without an error: all models in one stack by vmap, single models by torch.func, single models by
    ordinary autograd. Calls `say` with a sentence for each refused way. One model is no stack: vmap would ask for sizes as
    numbers, where a program for all context lengths must not.
    """

    def __init__(self, loss: Loss, say: Callable[[str], None], models: int) -> None:
        self.say = say
        of_one: Of = grad_and_value(loss)
        ways: list[tuple[Of, str]] = [
            (vmap(of_one), "vmap cannot take this model, so its seeds are trained one after the other, which is slower"),
            (one_by_one(of_one), "torch.func cannot take this model, so its gradients come from ordinary autograd"),
            (one_by_one(_by_backward(loss)), ""),
        ]
        self._ways = ways if models > 1 else ways[1:]

    def __call__(self, *stacked: Any) -> tuple[Any, Tensor]:
        """Raises the error of the last way for a model that fails in every way."""
        refusals: list[str] = []
        for way, otherwise in self._ways:
            try:
                found = way(*stacked)
                break
            except RuntimeError as error:
                if not otherwise or lacks_memory(error):
                    raise
                refusals.append(f"{otherwise}: {first_line(error)}")
        del self._ways[: len(refusals)]  # not tried again at every step
        for sentence in refusals:
            self.say(sentence)
        return found


def one_by_one(of_one: Of) -> Of:
    """Gradients and losses of stacked models, computed model by model."""

    def of_all(*stacked: Any) -> tuple[Any, Tensor]:
        models = len(tree_leaves(stacked)[0])
        each = [of_one(*tree_map(lambda tensor, index=index: tensor[index], stacked)) for index in range(models)]
        found: tuple[Any, Tensor] = tree_map(lambda *tensors: torch.stack(tensors), *each)
        return found

    return of_all


def _by_backward(loss: Loss) -> Of:
    def of_one(weights: Any, *rest: Any) -> tuple[Any, Tensor]:
        with torch.enable_grad():
            leaves = tree_map(lambda tensor: tensor.detach().requires_grad_(), weights)
            value = loss(leaves, *rest)
        gradients = iter(torch.autograd.grad(value, tree_leaves(leaves), materialize_grads=True))
        return tree_map(lambda leaf: next(gradients), leaves), value.detach()

    return of_one


def counting(device: torch.device) -> torch.dtype:
    """Type of steps and learning rates: float64, except float32 on MPS, which lacks float64 and counts exactly to 2^24."""
    return torch.float32 if device.type == "mps" else torch.float64


class TrainState(NamedTuple):
    """Tensors that a training step changes in place."""

    weights: Tensor
    """(P, N): all trained parameters of a model in one row."""
    optimizer: State
    """The optimizer's state, such as moments."""
    step: Tensor
    """(1,) of :func:`counting`: steps done. Not 0-dimensional: compiled code reads a 0-dimensional number before its change."""
    loss_sum: Tensor
    """(P,) since the latest point of the curve."""
    largest_norm: Tensor
    """(P,) of the gradient since the latest point of the curve."""
    diverged: Tensor
    """(P,) int64: first step with an infinite or NaN loss, 0 if none."""


@dataclass(frozen=True)
class Layout:
    """Place of each parameter of a model in a row of N numbers."""

    names: list[str]
    shapes: list[torch.Size]
    dtypes: list[torch.dtype]

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    def of_one(self, row: Tensor) -> Weights:
        """(N,) -> parameters of one model in their own types."""
        parts = zip(self.names, torch.split(row, self.sizes), self.shapes, self.dtypes, strict=True)
        return {name: part.view(shape).to(dtype) for name, part, shape, dtype in parts}

    def of_all(self, rows: Tensor) -> Weights:
        """(P, N) -> views with a leading P."""
        parts = zip(self.names, torch.split(rows, self.sizes, 1), self.shapes, strict=True)
        return {name: part.view(len(rows), *shape) for name, part, shape in parts}


class Rates(NamedTuple):
    """Settings that may differ within a population: peak learning rate, decay of each weight, steps of warmup."""

    lr: Tensor
    """(P, 1) of :func:`counting`."""
    decay: Tensor
    """(P, N): decay of parameters with two or more dimensions, such as matrices; 0 for gains and biases."""
    warmup: Tensor
    """(P, 1) of :func:`counting`."""
    steps: Tensor
    """(1,) of :func:`counting`: steps of the whole training. A Python number would make another program for each value."""

    @classmethod
    def of(cls, settings: Sequence[Training], layout: Layout, rows: Tensor) -> Rates:
        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=counting(rows.device), device=rows.device)[:, None]

        matrix = torch.cat([torch.full((shape.numel(),), float(len(shape) >= 2)) for shape in layout.shapes]).to(rows)
        return cls(
            column([train.lr for train in settings]),
            column([train.weight_decay for train in settings]).to(rows.dtype) * matrix,
            column([max(1, round(train.warmup * train.steps)) for train in settings]),
            torch.full((1,), float(settings[0].steps), dtype=counting(rows.device), device=rows.device),
        )


def step_of(
    skeleton: nn.Module, layout: Layout, optimizer: Optimizer, precision: str, say: Callable[[str], None], models: int
) -> Callable[..., Tensor]:
    """Training step of some models as a function of tensors alone.

    The model computes in `precision`, loss and optimizer in float32.
    """

    def loss(row: Tensor, buffers: Weights, inputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        compute = partial(functional_call, skeleton, {**layout.of_one(row), **buffers})
        logits = answered(compute, inputs, precision).flatten(0, 1)
        # Targets are tokens (B, A), or distributions over them (B, A, V).
        right = targets.flatten(0, 1)
        if weights is None:
            return F.cross_entropy(logits, right)
        by_answer = F.cross_entropy(logits, right, reduction="none") * weights.flatten()
        return by_answer.sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)  # no answer may count in a batch

    gradients = Gradients(loss, say, models)

    def step(state: TrainState, buffers: Weights, rates: Rates, *batch: Tensor) -> Tensor:
        # The fused attention kernels have no batching rule for their backward pass, so vmap would run them one by one.
        with sdpa_kernel(SDPBackend.MATH):
            gradient, loss_of_each = gradients(state.weights, buffers, *batch)
        losses: Tensor = loss_of_each.to(state.loss_sum.dtype)
        state.step.add_(1)
        # Linear warmup, then linear decay to 0 after the last step.
        # The warmup may be the whole training.
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
    """(P, N) in the form for the optimizer: one tensor, or one for each parameter."""
    return {"all": rows} if optimizer.elementwise else layout.of_all(rows)


def overwrite(old: State, new: State) -> None:
    """Write new values into old tensors as if all at once: a new value may be an old tensor of another name."""
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
