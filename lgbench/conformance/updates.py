"""Rules of optimizers and averagers: updates of states of tensors, without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lgbench.conformance.check import (
    CheckFailed,
    NotChecked,
    Outcome,
    Rules,
    expect,
    expect_close,
    kind_of,
    no_global_randomness,
    numbers,
)
from lgbench.contracts import Averager, Optimizer, Schedule, State, Weights

MODELS = 3
"""P, the models of a population."""
SHAPES = {"scale": (), "gain": (5,), "table": (4, 3), "kernel": (2, 3, 2)}
"""Parameters of one model, by name."""
STEPS = 4
DESCENT_STEPS, DESCENT_RATE = 100, 0.01
"""Steps and learning rate for the reduction of the loss w^2 / 2."""
SCHEDULES = (Schedule(steps=50, every=10), Schedule(steps=15, every=3))
"""Trainings with five updates of an average."""

OPTIMIZERS = Rules[[Optimizer]]()
AVERAGERS = Rules[[Averager]]()


def _copied(weights: Weights) -> Weights:
    return {name: tensor.clone() for name, tensor in weights.items()}


def _step(number: int) -> Tensor:
    """Number of a step, (1,) float64."""
    return torch.tensor([float(number)], dtype=torch.float64)


def _layout(weights: Weights) -> dict[str, str]:
    """Shapes and dtypes by name."""
    return {name: kind_of(tensor) for name, tensor in weights.items()}


def _layouts(state: State) -> dict[str, dict[str, str]]:
    return {part: _layout(tensors) for part, tensors in state.items()}


@contextmanager
def _unchanged(state: State, given: Mapping[str, Weights]) -> Iterator[None]:
    """Raise CheckFailed for a write into a tensor of the state, or of `given`, by what the tensors are.

    PyTorch counts writes.
    """
    given = {**given, **{f"the part {part!r} of the state": tensors for part, tensors in state.items()}}
    before = {(what, name): tensor._version for what, tensors in given.items() for name, tensor in tensors.items()}
    yield
    for (what, name), version in before.items():
        same = given[what][name]._version == version
        expect(same, f"it changes {what} in place, such as {name}: return new tensors")


def _without_values(weights: Weights) -> Weights:
    """Tensors of the same shapes and dtypes on the device "meta", without values."""
    return {name: tensor.to("meta") for name, tensor in weights.items()}


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Raise CheckFailed for a block that reads the value of a tensor without values, or mixes devices."""
    try:
        yield
    except (RuntimeError, TypeError) as error:  # torch has no types of its own for these errors
        message = str(error).partition("\n")[0]
        if "'Meta' backend" in message:
            raise NotChecked(f"torch cannot follow its operations: {message}") from error
        if "same device" in message or "expected device" in message:
            raise CheckFailed("it makes tensors on another device than that of the weights") from error
        expect("meta" not in message, f"it reads the value of a tensor, and so waits for the device at every step: {message}")
        raise


def _initial(optimizer: Optimizer, seed: int = 0) -> Weights:
    """Weights as the harness gives them: one tensor for an elementwise optimizer, else a tensor for each parameter."""
    rows = {name: numbers(MODELS, *shape, seed=seed + place) for place, (name, shape) in enumerate(SHAPES.items())}
    if not optimizer.elementwise:
        return rows
    return {"all": torch.cat([tensor.reshape(MODELS, -1) for tensor in rows.values()], 1)}


def _gradients(optimizer: Optimizer) -> list[Weights]:
    return [_initial(optimizer, seed=10 * step) for step in range(1, STEPS + 1)]


def _rates(weights: Weights, lr: float = 0.01) -> tuple[Weights, Weights]:
    """Learning rates that broadcast to each weight, and a weight decay for each weight: 0 for gains and biases."""
    each = {name: torch.full((len(w), *[1] * (w.ndim - 1)), lr) for name, w in weights.items()}
    return each, {name: torch.full_like(w, 0.0 if name in ("scale", "gain") else 0.1) for name, w in weights.items()}


def _updated(optimizer: Optimizer, weights: Weights, gradients: list[Weights]) -> Weights:
    """Weights after a step with each of the gradients."""
    state = optimizer.start(_copied(weights))
    for number, gradient in enumerate(gradients, start=1):
        state, weights = optimizer.update(state, weights, _copied(gradient), *_rates(weights), _step(number))
    return weights


@OPTIMIZERS.rule("names, shapes and dtypes never change, and no tensor changes in place")
def _optimizer_keeps_tensors(optimizer: Optimizer) -> None:
    weights = _initial(optimizer)
    expected = _layout(weights)
    with _unchanged({}, {"the weights that `start` gets": weights}):
        state = optimizer.start(weights)
    first = _layouts(state)
    for number, gradient in enumerate(_gradients(optimizer), start=1):
        (lr, decay), step = _rates(weights), _step(number)
        given = {"the weights": weights, "the gradients": gradient, "the learning rates": lr, "the weight decay": decay}
        with no_global_randomness(), _unchanged(state, {**given, "the number of the step": {"step": step}}):
            state, weights = optimizer.update(state, weights, gradient, lr, decay, step)
        expect(_layouts(state) == first, f"after step {number} the state has other names, shapes or dtypes than at the start")
        found = _layout(weights)
        expect(found == expected, f"after step {number} the weights are {found}, expected {expected}")


@OPTIMIZERS.rule("each model is updated by itself, and each weight too if the optimizer is elementwise")
def _updates_each_alone(optimizer: Optimizer) -> None:
    weights, gradients = _initial(optimizer), _gradients(optimizer)
    together = _updated(optimizer, weights, gradients)
    models, every = [slice(index, index + 1) for index in range(MODELS)], slice(None)
    parts: list[tuple[tuple[Any, ...], str]] = [((own,), "models beside it") for own in models]
    if optimizer.elementwise:
        beside = "other weights beside it: set elementwise = False"
        parts += [((every, own), beside) for own in (slice(0, 1), slice(1, 6), slice(6, None))]  # scale, gain and the others
    for part, beside in parts:
        own_weights, *own_gradients = ({name: w[part] for name, w in each.items()} for each in (weights, *gradients))
        for name, alone in _updated(optimizer, own_weights, own_gradients).items():
            expect_close(together[name][part], alone, f"the update of {name} depends on the {beside}", 1e-5)


@OPTIMIZERS.rule("a gradient of zero gives finite weights")
def _survives_zeros(optimizer: Optimizer) -> None:
    weights = _initial(optimizer)
    zeros = {name: torch.zeros_like(w) for name, w in weights.items()}
    for name, tensor in _updated(optimizer, weights, [zeros] * STEPS).items():
        expect(tensor.isfinite().all(), f"gradients of zero give {name} values that are not finite")


@OPTIMIZERS.rule("steps reduce a simple loss")
def _descends(optimizer: Optimizer) -> None:
    weights = _initial(optimizer)
    state, start = optimizer.start(_copied(weights)), _loss(weights)
    for number in range(1, DESCENT_STEPS + 1):
        # The gradient of w^2 / 2 is w.
        state, weights = optimizer.update(state, weights, _copied(weights), *_rates(weights, DESCENT_RATE), _step(number))
    end = _loss(weights)
    expect(end < start, f"{DESCENT_STEPS} steps with lr {DESCENT_RATE} change the loss w^2 / 2 from {start:.4g} to {end:.4g}")


def _loss(weights: Weights) -> float:
    return sum(tensor.double().square().sum().item() for tensor in weights.values()) / 2


@OPTIMIZERS.rule("an update does not wait for the device")
def _optimizer_does_not_wait(optimizer: Optimizer) -> None:
    weights = _initial(optimizer)
    state = {part: _without_values(tensors) for part, tensors in optimizer.start(_copied(weights)).items()}
    lr, decay = (_without_values(each) for each in _rates(weights))
    with _no_waiting():
        optimizer.update(state, _without_values(weights), _without_values(weights), lr, decay, _step(1).to("meta"))


def _path(schedule: Schedule = SCHEDULES[0]) -> list[Weights]:
    """Weights before training and at each update."""
    updates = schedule.steps // schedule.every
    return [{"table": numbers(3, 2, seed=i), "gain": numbers(3, seed=10 + i)} for i in range(updates + 1)]


def _steps(schedule: Schedule) -> range:
    """Steps of the updates."""
    return range(schedule.every, schedule.steps + 1, schedule.every)


def _averaged(averager: Averager, weights: list[Weights], schedule: Schedule = SCHEDULES[0]) -> State:
    """State at the end of a path. Raises CheckFailed if names, shapes or dtypes change."""
    state = averager.start(_copied(weights[0]), schedule)
    for step, current in zip(_steps(schedule), weights[1:], strict=True):
        first = _layouts(state)
        with no_global_randomness():
            state = averager.update(state, _copied(current), _step(step)[0])
        expect(_layouts(state) == first, f"after step {step} the state has other names, shapes or dtypes than before")
    return state


@AVERAGERS.rule("names and shapes are those of the weights, a state's never change, and asking changes nothing")
def _averager_keeps_tensors(averager: Averager) -> None:
    weights = _path()
    state = _averaged(averager, weights)
    with _unchanged(state, {}):
        found = averager.weights(state)
    expect(found.keys() == weights[0].keys(), f"it gives the weights {', '.join(found)}, expected {', '.join(weights[0])}")
    for name, tensor in found.items():
        shape = weights[0][name].shape
        expect(tensor.shape == shape, f"it gives {name} as {tuple(tensor.shape)}, expected {tuple(shape)}")


@AVERAGERS.rule("each model is averaged by itself")
def _averager_is_alone(averager: Averager) -> None:
    first = _path()
    second = [{name: w * 2 - 1 for name, w in weights.items()} for weights in first]
    both = [{name: torch.stack([a[name], b[name]]) for name in a} for a, b in zip(first, second, strict=True)]
    together = averager.weights(_averaged(averager, both))
    for index, alone in enumerate((first, second)):
        for name, tensor in averager.weights(_averaged(averager, alone)).items():
            sentence = f"{name} of one model depends on the models beside it: every operation must be elementwise"
            expect_close(together[name][index], tensor, sentence, 1e-6)


@AVERAGERS.rule("weights that never change are their own average")
def _keeps_constants(averager: Averager) -> None:
    for schedule in SCHEDULES:
        start = _path()[0]
        constant = [start] * (schedule.steps // schedule.every + 1)
        for name, tensor in averager.weights(_averaged(averager, constant, schedule)).items():
            expect_close(tensor.to(start[name].dtype), start[name], f"{name} never changed, and its average is something else")


@AVERAGERS.rule("it agrees with its reference")
def _agrees_with_reference(averager: Averager) -> Outcome:
    for schedule in SCHEDULES:
        weights = _path(schedule)
        found = averager.weights(_averaged(averager, weights, schedule))
        for name in weights[0]:
            singles = zip(*(each[name].flatten().tolist() for each in weights), strict=True)
            for value, (start, *later) in zip(found[name].flatten().tolist(), singles, strict=True):
                expected = averager.reference(start, list(zip(_steps(schedule), later, strict=True)), schedule)
                if expected is None:
                    return "it has no `reference` to compare with"
                values = ", ".join(f"{x:.3g}" for x in (start, *later))
                right = abs(value - expected) <= 1e-4 * max(1.0, abs(expected))
                expect(right, f"the average of {values} is {value:.6g}, and its reference is {expected:.6g}")
    return None


@AVERAGERS.rule("an update does not wait for the device")
def _averager_does_not_wait(averager: Averager) -> None:
    weights = _path()
    started = averager.start(_copied(weights[0]), SCHEDULES[0])
    state = {part: _without_values(tensors) for part, tensors in started.items()}
    with _no_waiting():
        averager.update(state, _without_values(weights[1]), _step(10)[0].to("meta"))
