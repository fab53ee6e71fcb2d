"""Weights as bytes: one trained model with every variant of its weights, in the safetensors format, and back.

A tensor is named after its variant and its place in the model, as in "raw/readout.weight". Buffers and parameters that are not
trained are the same for all variants, and are named as if they were those of a variant "_shared".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from lgbench.contracts import Weights
from lgbench.errors import RunFailed, RunFileError, first_line
from lgbench.experiment.record import ExperimentRecord
from lgbench.training.models import Models

SHARED = "_shared"
"""No averager can have this name."""


def kept(models: Models, index: int, record: ExperimentRecord) -> bytes:
    """One model of a population. Equal weights give equal bytes. Raises RunFailed for tensors that the format does not have."""
    tensors = {
        f"{variant}/{name}": tensor[index].detach().cpu().contiguous().clone()  # a clone, for no two may share memory
        for variant, own in (*models.weights.items(), (SHARED, models.buffers))
        for name, tensor in own.items()
    }
    about = {"run_id": record.run_id, "run": record.title}
    try:
        # One key alone: the order of several would be another one each time.
        return save(tensors, {"lgbench": json.dumps(about)})
    except (SafetensorError, KeyError, ValueError) as error:
        raise RunFailed(f"the weights of {record.title} cannot be kept: {type(error).__name__}: {first_line(error)}") from error


def restored(content: bytes, skeleton: nn.Module, variants: Sequence[str], precision: str, device: torch.device) -> Models:
    """The model that :func:`kept` wrote, computing by a module of the same architecture on a device: a population of one.

    Raises RunFileError where these are no weights of `variants`, or those of another model.
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
    """Copies with a leading 1."""
    start = f"{variant}/"
    return {
        name.removeprefix(start): tensor[None].clone().to(device) for name, tensor in tensors.items() if name.startswith(start)
    }


def _other(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    """The first thing in which tensors differ from the expected ones."""
    for name in (*expected, *found):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{ascii(name)} is no tensor of it"
        there, here = ((tuple(tensors[name].shape), tensors[name].dtype) for tensors in (found, expected))
        if there != here:
            return f"{name} is {there[0]} of {there[1]}, and in this model {here[0]} of {here[1]}"
    return None
