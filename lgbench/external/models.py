"""A module or a function as lgbench asks it: inputs to logits, on one device, with whatever it gives checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lgbench.contracts import Signature
from lgbench.execution.device import choose_device
from lgbench.extensions.function_files import as_name, require_logits
from lgbench.measurement.causality import Predict
from lgbench.results.external_models import ExternalModel

Model = nn.Module | Callable[[Tensor], Any]
MAX_NAME = 200
"""Characters of a name in a footer."""
UNNAMED = "model"
"""The name of a model that has none, such as a lambda."""


def described(model: Model) -> ExternalModel:
    """The footer's description of a model."""
    named = type(model) if isinstance(model, nn.Module) or not hasattr(model, "__qualname__") else model
    made_of = f"{named.__module__}.{named.__qualname__}"[:MAX_NAME]
    if not isinstance(model, nn.Module):
        return ExternalModel("function", made_of, None, None)
    return ExternalModel("module", made_of, sum(p.numel() for p in model.parameters()), _digest(model))


def name_of(model: Model) -> str:
    """The name of a model that nobody named: that of its class, or of the function.

    >>> name_of(nn.Linear(1, 1)), name_of(lambda inputs: inputs)
    ('linear', 'model')
    """
    own = type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", type(model).__name__)
    return as_name(own.replace("<lambda>", "")) or UNNAMED


def device_of(model: Model, named: str | None) -> torch.device:
    """The device that somebody named; by default the one that a module is on, and the CPU for a function."""
    if named is not None:
        return choose_device(named)
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    return tensors[0].device if tensors else torch.device("cpu")


@contextmanager
def asked(model: Model, name: str, signature: Signature, device: torch.device) -> Iterator[Predict]:
    """The model as evaluation asks it: in evaluation mode and on this device inside, as it was afterwards.

    Each answer is checked. Raises Unsupported where it has another shape than logits have.
    """

    def predict(inputs: Tensor) -> Tensor:
        logits = model(inputs)
        if not isinstance(logits, Tensor):
            logits = torch.as_tensor(logits)  # of NumPy, or a list
        require_logits(f"the model {name}", logits, inputs.shape[:2], signature)
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return wide.to(inputs.device)

    if not isinstance(model, nn.Module):
        yield predict
        return
    before, modes = device_of(model, None), {module: module.training for module in model.modules()}
    model.eval()
    if device != before:
        model.to(device)
    try:
        yield predict
    finally:
        for module, training in modes.items():
            module.training = training
        if device != before:
            model.to(before)


def _digest(model: nn.Module) -> str:
    """The SHA-256 of everything that the module's state has."""
    total = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, Tensor):
            total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
