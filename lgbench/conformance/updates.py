"""Checks of optimizers and averagers: updates of states of tensors, which must not wait for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lgbench.conformance.check import CheckFailed, Checks, NotChecked, Outcome, expect, expect_close
from lgbench.conformance.material import no_global_randomness, numbers
from lgbench.contracts import Averager, Optimizer, Schedule, State, Weights

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


MODELS = 3
"""P, the models of a population."""
SHAPES = {"scale": (), "gain": (5,), "table": (4, 3), "kernel": (2, 3, 2)}
"""Parameters of one model, by name."""
STEPS = 4
DESCENT_STEPS, DESCENT_RATE = 100, 0.01
"""How long, and with which learning rate, a loss of w^2 / 2 is reduced."""


def checks_of_optimizer(optimizer: Optimizer) -> Checks:
    found = {
        "names, shapes and dtypes never change": lambda: _optimizer_keeps_shapes(optimizer),
        "nothing is changed in place": lambda: _changes_nothing_in_place(optimizer),
        "each model is updated by itself": lambda: _optimizer_is_alone(optimizer),
        "a gradient of zero gives finite weights": lambda: _survives_zeros(optimizer),
        "steps reduce a simple loss": lambda: _descends(optimizer),
        "an update does not wait for the device": lambda: _optimizer_does_not_wait(optimizer),
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


def _optimizer_keeps_shapes(optimizer: Optimizer) -> Outcome:
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


def _optimizer_is_alone(optimizer: Optimizer) -> Outcome:
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


def _optimizer_does_not_wait(optimizer: Optimizer) -> Outcome:
    weights = initial(optimizer)
    state: State = {part: without_values(tensors) for part, tensors in optimizer.start(copied(weights)).items()}
    lr, decay = (without_values(each) for each in rates(weights))
    step: Tensor = step_of(1).to("meta")
    with no_waiting():
        optimizer.update(state, without_values(weights), without_values(weights), lr, decay, step)
    return None


SCHEDULES = (Schedule(steps=50, every=10), Schedule(steps=15, every=3))
"""Trainings along which weights are averaged, at five updates."""


def checks_of_averager(averager: Averager) -> Checks:
    return {
        "names, shapes and dtypes are those of the weights, and a state's never change": lambda: _averager_keeps_shapes(
            averager
        ),
        "asking for the average changes nothing": lambda: _can_be_asked_again(averager),
        "each model is averaged by itself": lambda: _averager_is_alone(averager),
        "weights that never change are their own average": lambda: _keeps_constants(averager),
        "it agrees with its reference": lambda: _agrees_with_reference(averager),
        "an update does not wait for the device": lambda: _averager_does_not_wait(averager),
    }


def path(schedule: Schedule = SCHEDULES[0]) -> list[Weights]:
    """Weights before training and at each update."""
    updates = schedule.steps // schedule.every
    return [{"table": numbers(3, 2, seed=i), "gain": numbers(3, seed=10 + i)} for i in range(updates + 1)]


def steps(schedule: Schedule) -> range:
    """The steps of the updates."""
    return range(schedule.every, schedule.steps + 1, schedule.every)


def averaged(averager: Averager, weights: list[Weights], schedule: Schedule = SCHEDULES[0]) -> State:
    """The state at the end of a path."""
    state = averager.start(copied(weights[0]), schedule)
    for step, current in zip(steps(schedule), weights[1:], strict=True):
        state = averager.update(state, copied(current), step_of(step)[0])
    return state


def _averager_keeps_shapes(averager: Averager) -> Outcome:
    weights, schedule = path(), SCHEDULES[0]
    state = averager.start(copied(weights[0]), schedule)
    for step, current in zip(steps(schedule), weights[1:], strict=True):
        with no_global_randomness():
            later = averager.update(state, copied(current), step_of(step)[0])
        expect(layout(later) == layout(state), f"after step {step} the state has other names, shapes or dtypes than before")
        state = later
    found = averager.weights(state)
    expect(found.keys() == weights[0].keys(), f"it gives the weights {', '.join(found)}, expected {', '.join(weights[0])}")
    for name, tensor in found.items():
        shape = weights[0][name].shape
        expect(tensor.shape == shape, f"it gives {name} as {tuple(tensor.shape)}, expected {tuple(shape)}")
    return None


def _can_be_asked_again(averager: Averager) -> Outcome:
    state = averaged(averager, path())
    before = copied_state(state)
    first, second = copied(averager.weights(state)), averager.weights(state)
    for part, tensors in state.items():
        for name, tensor in tensors.items():
            same = torch.equal(tensor, before[part][name])
            expect(same, f"`weights` changes the part {part!r} of the state in place, such as {name}: return new tensors")
    for name, tensor in second.items():
        expect_close(tensor, first[name], f"`weights` gives another {name} the second time")
    return None


def _averager_is_alone(averager: Averager) -> Outcome:
    first = path()
    second = [{name: w * 2 - 1 for name, w in weights.items()} for weights in first]
    both = [{name: torch.stack([a[name], b[name]]) for name in a} for a, b in zip(first, second, strict=True)]
    together = averager.weights(averaged(averager, both))
    for index, alone in enumerate((first, second)):
        for name, tensor in averager.weights(averaged(averager, alone)).items():
            sentence = f"{name} of one model depends on the models beside it: every operation must be elementwise"
            expect_close(together[name][index], tensor, sentence, 1e-6)
    return None


def _keeps_constants(averager: Averager) -> Outcome:
    for schedule in SCHEDULES:
        start = path()[0]
        constant = [start] * (schedule.steps // schedule.every + 1)
        for name, tensor in averager.weights(averaged(averager, constant, schedule)).items():
            expect_close(tensor.to(start[name].dtype), start[name], f"{name} never changed, and its average is something else")
    return None


def _agrees_with_reference(averager: Averager) -> Outcome:
    for schedule in SCHEDULES:
        weights = path(schedule)
        found = averager.weights(averaged(averager, weights, schedule))
        for name in weights[0]:
            singles = zip(*(each[name].flatten().tolist() for each in weights), strict=True)
            for place, (start, *later) in enumerate(singles):
                expected = averager.reference(start, list(zip(steps(schedule), later, strict=True)), schedule)
                if expected is None:
                    return "it has no `reference` to compare with"
                value = found[name].flatten()[place].item()
                if abs(value - expected) > 1e-4 * max(1.0, abs(expected)):
                    values = ", ".join(f"{x:.3g}" for x in (start, *later))
                    raise CheckFailed(f"the average of {values} is {value:.6g}, and its reference is {expected:.6g}")
    return None


def _averager_does_not_wait(averager: Averager) -> Outcome:
    weights = path()
    started = averager.start(copied(weights[0]), SCHEDULES[0])
    state = {part: without_values(tensors) for part, tensors in started.items()}
    with no_waiting():
        averager.update(state, without_values(weights[1]), step_of(10)[0].to("meta"))
    return None
