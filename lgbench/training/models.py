"""Models of a population as functions from inputs to logits, with their training curve, precision, and weights as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from lgbench.contracts import Weights
from lgbench.errors import RunFailed, RunFileError, first_line, message_of
from lgbench.experiment.record import ExperimentRecord

POINTS = 50
"""Largest number of points of a training curve."""


@dataclass(frozen=True)
class Curve:
    """Training curve. Each point covers the steps since the previous point."""

    steps: list[int]
    loss: Tensor
    """(points, P): mean over the covered steps, in nats."""
    gradient_norm: Tensor
    """(points, P): largest norm over the covered steps. A mean would hide a spike."""


NO_CURVE = Curve([], torch.empty(0, 1), torch.empty(0, 1))
"""Curve of a model without a training in lgbench."""


def answered(compute: Callable[[Tensor], Tensor], inputs: Tensor, precision: str) -> Tensor:
    """Logits of a model as float32 or wider. `precision`: "float32", or "bfloat16" for products in torch's mixed precision.

    Weights, optimizer, averages, losses and scores are float32 or wider in both, and so is the product of a task's vectors with
    the weights that embed them: rounded to 8 bits, items of close values are the same. On max retrieval bfloat16 raises the OOD
    TVD by 0.044 with rounded items, and by 0.001 with items in float32 (leaderboards/inside, section 6).
    """
    with ExitStack() as inside:
        if precision != "float32":
            # Without autocast's cache: a captured or traced step would keep the weights of one step for the next.
            inside.enter_context(torch.autocast(inputs.device.type, getattr(torch, precision), cache_enabled=False))
            inside.enter_context(_Wide(inputs))
        found = compute(inputs)
    return found.to(torch.promote_types(found.dtype, torch.float32))


class _Wide(TorchFunctionMode):
    """Products with the inputs, and norms, in float32.

    On a GPU automatic mixed precision computes norms so; on a CPU it would mix types, which vmap refuses.
    """

    def __init__(self, inputs: Tensor) -> None:
        super().__init__()
        self.inputs = inputs

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        embeds = function is F.linear and arguments[0] is self.inputs
        if not embeds and function not in _NORMS:
            return function(*arguments, **(keywords or {}))
        with torch.autocast(self.inputs.device.type, enabled=False):
            first, *others = arguments
            return function(first.float(), *others, **(keywords or {}))


_NORMS = frozenset({F.layer_norm, torch.layer_norm, F.rms_norm, F.group_norm, torch.group_norm})


@dataclass(frozen=True)
class Models:
    """Models of a population. `weights`: by variant ("raw" and each averager), tensors with a leading P."""

    skeleton: nn.Module
    weights: dict[str, Weights]
    buffers: Weights
    precision: str
    """Precision of the computation, "float32" or "bfloat16"."""

    def models(self, index: int) -> dict[str, Callable[[Tensor], Tensor]]:
        """One model of the population by variant of its weights."""
        return {variant: self.model(variant, index) for variant in self.weights}

    def on(self, skeleton: nn.Module) -> Models:
        """The same weights in another module of the same architecture."""
        return Models(skeleton, self.weights, self.buffers, self.precision)

    def model(self, variant: str, index: int) -> Callable[[Tensor], Tensor]:
        """One model of the population as a function from inputs to logits, in the skeleton's training or evaluation mode."""
        state = {name: tensor[index] for name, tensor in (self.weights[variant] | self.buffers).items()}
        compute: Callable[[Tensor], Tensor] = partial(functional_call, self.skeleton, state)
        return lambda inputs: answered(compute, inputs, self.precision)


@dataclass(frozen=True)
class Trained(Models):
    """Trained population in evaluation mode."""

    measured: Mapping[int, Any]
    """Measurements at the eval steps, by step."""
    curve: Curve
    diverged: list[int | None]
    """First step with an infinite or NaN loss, by model; None without one.

    The last step counts if its update left infinite or NaN weights.
    """
    stack: int
    """Size of the stack, including models that only fill the stack."""
    compiled: bool
    """Whether the training step was compiled."""
    resumed: bool
    """Whether training continued from a checkpoint."""
    seconds: float
    """Seconds of training in all processes, including measurements on the way."""


SHARED = "_shared"
"""Variant name for tensors shared by all variants: buffers and untrained parameters. No averager can have this name."""


def saved(models: Models, index: int, record: ExperimentRecord) -> bytes:
    """Weights of one model with every variant, in the safetensors format. Equal weights give equal bytes.

    A tensor is named after the variant and the place in the model, as in "raw/readout.weight". Raises RunFailed for tensor
    types unknown to the format.
    """
    tensors = {
        f"{variant}/{name}": tensor[index].detach().cpu().contiguous().clone()  # safetensors refuses tensors with shared memory
        for variant, own in (*models.weights.items(), (SHARED, models.buffers))
        for name, tensor in own.items()
    }
    about = {"run_id": record.run_id, "run": record.title}
    try:
        # One key alone: safetensors writes several keys in a random order.
        return save(tensors, {"lgbench": json.dumps(about)})
    except (SafetensorError, KeyError, ValueError) as error:
        raise RunFailed(f"the weights of {record.title} cannot be saved: {message_of(error)}") from error


def restored(content: bytes, skeleton: nn.Module, variants: Sequence[str], precision: str, device: torch.device) -> Models:
    """Model from the bytes of :func:`saved`, in a module of the same architecture on a device: a population of one.

    Raises RunFileError for bytes in another format, or for weights of another model or other variants.
    """
    try:
        tensors = load(content)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise RunFileError(f"the weights are not in the safetensors format: {first_line(error)}") from error
    trained: dict[str, Tensor] = {name: p for name, p in skeleton.named_parameters() if p.requires_grad}
    others: dict[str, Tensor] = {name: p for name, p in skeleton.named_parameters() if not p.requires_grad}
    others |= dict(skeleton.named_buffers())
    expected = {f"{variant}/{name}": tensor for variant in variants for name, tensor in trained.items()}
    expected |= {f"{SHARED}/{name}": tensor for name, tensor in others.items()}
    if wrong := _other(tensors, expected):
        raise RunFileError(f"the weights are those of another model: {wrong}")
    skeleton.to(device).eval()
    weights = {variant: _of(variant, tensors, device) for variant in variants}
    return Models(skeleton, weights, _of(SHARED, tensors, device), precision)


def _of(variant: str, tensors: Mapping[str, Tensor], device: torch.device) -> Weights:
    """Tensors of a variant as copies with a leading 1."""
    start = f"{variant}/"
    return {
        name.removeprefix(start): tensor[None].clone().to(device) for name, tensor in tensors.items() if name.startswith(start)
    }


def _other(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    """First difference between found and expected tensors; None if all agree in name, shape and type."""
    for name in (*expected, *found):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{ascii(name)} is no tensor of it"
        there, here = ((tuple(tensors[name].shape), tensors[name].dtype) for tensors in (found, expected))
        if there != here:
            return f"{name} is {there[0]} of {there[1]}, and in this model {here[0]} of {here[1]}"
    return None
