"""Checks of optimizers."""

from __future__ import annotations

import torch
from torch import Tensor

from lgbench.contracts import Optimizer, State, Weights
from lgbench.extensions.conformance.check import Checks, Outcome, expect, expect_close
from lgbench.extensions.conformance.probes import no_global_randomness, numbers
from lgbench.extensions.conformance.states import (
    copied,
    copied_state,
    expect_unchanged,
    layout,
    no_waiting,
    step_of,
    without_values,
)

MODELS = 3
"""P, the models of a population."""
SHAPES = {"scale": (), "gain": (5,), "table": (4, 3), "kernel": (2, 3, 2)}
"""Parameters of one model, by name."""
STEPS = 4
DESCENT_STEPS, DESCENT_RATE = 100, 0.01
"""How long, and with which learning rate, a loss of w^2 / 2 is reduced."""


def checks(optimizer: Optimizer) -> Checks:
    found = {
        "names, shapes and dtypes never change": lambda: _keeps_shapes(optimizer),
        "nothing is changed in place": lambda: _changes_nothing_in_place(optimizer),
        "each model is updated by itself": lambda: _is_alone(optimizer),
        "a gradient of zero gives finite weights": lambda: _survives_zeros(optimizer),
        "steps reduce a simple loss": lambda: _descends(optimizer),
        "an update does not wait for the device": lambda: _does_not_wait(optimizer),
    }
    if optimizer.elementwise:
        found["each weight's update depends on that weight alone"] = lambda: _is_elementwise(optimizer)
    return found


def initial(optimizer: Optimizer, seed: int = 0, models: int = MODELS) -> Weights:
    """Weights as the harness gives them: one tensor for an elementwise optimizer, else a tensor for each parameter."""
    rows = {name: numbers(models, *shape, seed=seed + place) for place, (name, shape) in enumerate(SHAPES.items())}
    if not optimizer.elementwise:
        return rows
    return {"all": torch.cat([tensor.reshape(models, -1) for tensor in rows.values()], 1)}


def rates(weights: Weights, lr: float = 0.01) -> tuple[Weights, Weights]:
    """Learning rates that broadcast to each weight, and a weight decay for each weight: 0 for gains and biases."""
    each = {name: torch.full((len(w), *[1] * (w.ndim - 1)), lr) for name, w in weights.items()}
    return each, {name: torch.full_like(w, 0.0 if name in ("scale", "gain") else 0.1) for name, w in weights.items()}


def updated(optimizer: Optimizer, weights: Weights, gradients: list[Weights], lr: float = 0.01) -> Weights:
    """The weights after a step with each of the gradients."""
    state = optimizer.start(copied(weights))
    for number, gradient in enumerate(gradients, start=1):
        state, weights = optimizer.update(state, weights, copied(gradient), *rates(weights, lr), step_of(number))
    return weights


def _gradients(optimizer: Optimizer) -> list[Weights]:
    return [initial(optimizer, seed=10 * step) for step in range(1, STEPS + 1)]


def _keeps_shapes(optimizer: Optimizer) -> Outcome:
    weights = initial(optimizer)
    state = optimizer.start(copied(weights))
    first, expected = layout(state), layout({"": weights})[""]
    for number, gradient in enumerate(_gradients(optimizer), start=1):
        with no_global_randomness():
            state, weights = optimizer.update(state, weights, gradient, *rates(weights), step_of(number))
        expect(layout(state) == first, f"after step {number} the state has other names, shapes or dtypes than at the start")
        found = layout({"": weights})[""]
        expect(found == expected, f"after step {number} the weights are {_listed(found)}, expected {_listed(expected)}")
    return None


def _listed(tensors: dict[str, tuple[torch.Size, torch.dtype]]) -> str:
    return ", ".join(f"{name} {tuple(shape)} {str(dtype).removeprefix('torch.')}" for name, (shape, dtype) in tensors.items())


def _changes_nothing_in_place(optimizer: Optimizer) -> Outcome:
    weights = initial(optimizer)
    given = copied(weights)
    state = optimizer.start(given)
    expect_unchanged(given, weights, "the weights that `start` gets")
    for number, gradient in enumerate(_gradients(optimizer), start=1):
        lr, decay = rates(weights)
        every = {"the weights": weights, "the gradients": gradient, "the learning rates": lr, "the weight decay": decay}
        every |= {f"the part {part!r} of the state": tensors for part, tensors in state.items()}
        every["the number of the step"] = {"step": step_of(number)}
        before = copied_state(every)
        state, weights = optimizer.update(state, weights, gradient, lr, decay, every["the number of the step"]["step"])
        for what, tensors in every.items():
            expect_unchanged(tensors, before[what], what)
    return None


def _is_alone(optimizer: Optimizer) -> Outcome:
    weights, gradients = initial(optimizer), _gradients(optimizer)
    together = updated(optimizer, weights, gradients)
    for index in range(MODELS):
        alone = updated(optimizer, _rows(weights, index), [_rows(gradient, index) for gradient in gradients])
        for name, tensor in alone.items():
            sentence = f"the new {name} of one model depends on the models beside it"
            expect_close(together[name][index : index + 1], tensor, sentence, 1e-5)
    return None


def _rows(weights: Weights, index: int) -> Weights:
    return {name: tensor[index : index + 1] for name, tensor in weights.items()}


def _is_elementwise(optimizer: Optimizer) -> Outcome:
    weights, gradients = initial(optimizer), _gradients(optimizer)
    together = updated(optimizer, weights, gradients)["all"]
    for columns in (slice(0, 1), slice(1, 6), slice(6, None)):
        part = updated(optimizer, _columns(weights, columns), [_columns(gradient, columns) for gradient in gradients])
        sentence = "a weight's update depends on the other weights beside it: set elementwise = False"
        expect_close(together[:, columns], part["all"], sentence, 1e-5)
    return None


def _columns(weights: Weights, columns: slice) -> Weights:
    return {name: tensor[:, columns] for name, tensor in weights.items()}


def _survives_zeros(optimizer: Optimizer) -> Outcome:
    weights = initial(optimizer)
    zeros = {name: torch.zeros_like(w) for name, w in weights.items()}
    for name, tensor in updated(optimizer, weights, [zeros] * STEPS).items():
        expect(bool(tensor.isfinite().all()), f"gradients of zero give {name} values that are not finite")
    return None


def _descends(optimizer: Optimizer) -> Outcome:
    weights = initial(optimizer)
    state, start = optimizer.start(copied(weights)), _loss(weights)
    for number in range(1, DESCENT_STEPS + 1):
        # The gradient of w^2 / 2 is w.
        state, weights = optimizer.update(state, weights, copied(weights), *rates(weights, DESCENT_RATE), step_of(number))
    end = _loss(weights)
    expect(end < start, f"{DESCENT_STEPS} steps with lr {DESCENT_RATE} change the loss w^2 / 2 from {start:.4g} to {end:.4g}")
    return None


def _loss(weights: Weights) -> float:
    return sum(tensor.double().square().sum().item() for tensor in weights.values()) / 2


def _does_not_wait(optimizer: Optimizer) -> Outcome:
    weights = initial(optimizer)
    state: State = {part: without_values(tensors) for part, tensors in optimizer.start(copied(weights)).items()}
    lr, decay = (without_values(each) for each in rates(weights))
    step: Tensor = step_of(1).to("meta")
    with no_waiting():
        optimizer.update(state, without_values(weights), without_values(weights), lr, decay, step)
    return None
