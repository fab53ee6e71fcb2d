"""Tools for the checks of optimizers and averagers: states of tensors, and updates that must not wait for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lgbench.contracts import State, Weights
from lgbench.extensions.conformance.check import CheckFailed, NotChecked, expect

META = torch.device("meta")
"""Torch's device for tensors that have shapes and no values."""


def copied(weights: Weights) -> Weights:
    return {name: tensor.clone() for name, tensor in weights.items()}


def copied_state(state: State) -> State:
    return {part: copied(tensors) for part, tensors in state.items()}


def step_of(number: int) -> Tensor:
    """The number of a step, (1,) float64."""
    return torch.tensor([float(number)], dtype=torch.float64)


def layout(state: State) -> dict[str, dict[str, tuple[torch.Size, torch.dtype]]]:
    """Names, shapes and types of a state's tensors."""
    return {part: {name: (t.shape, t.dtype) for name, t in tensors.items()} for part, tensors in state.items()}


def expect_unchanged(now: Weights, before: Weights, what: str) -> None:
    """Raise CheckFailed for the first of these tensors that was changed in place."""
    for name, tensor in now.items():
        expect(torch.equal(tensor, before[name]), f"it changes {what} in place, such as {name}: return new tensors")


def without_values(weights: Weights) -> Weights:
    """Tensors of the same shapes and types without values."""
    return {name: tensor.to(META) for name, tensor in weights.items()}


@contextmanager
def no_waiting() -> Iterator[None]:
    """Use tensors without values inside. Raises CheckFailed if a value is read, or if devices are mixed."""
    try:
        yield
    except (RuntimeError, TypeError) as error:
        message = str(error).partition("\n")[0]
        if "'Meta' backend" in message:
            raise NotChecked(f"torch cannot follow its operations: {message}") from error
        if "same device" in message or "expected device" in message:
            raise CheckFailed("it makes tensors on another device than that of the weights") from error
        expect("meta" not in message, f"it reads the value of a tensor, and so waits for the device at every step: {message}")
        raise
