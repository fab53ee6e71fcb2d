"""Checks of averagers."""

from __future__ import annotations

import torch

from lgbench.contracts import Averager, Schedule, State, Weights
from lgbench.extensions.conformance.check import CheckFailed, Checks, Outcome, expect, expect_close
from lgbench.extensions.conformance.probes import no_global_randomness, numbers
from lgbench.extensions.conformance.states import copied, copied_state, layout, no_waiting, step_of, without_values

SCHEDULES = (Schedule(steps=50, every=10), Schedule(steps=15, every=3))
"""Trainings along which weights are averaged, at five updates."""


def checks(averager: Averager) -> Checks:
    return {
        "names, shapes and dtypes are those of the weights, and a state's never change": lambda: _keeps_shapes(averager),
        "asking for the average changes nothing": lambda: _can_be_asked_again(averager),
        "each model is averaged by itself": lambda: _is_alone(averager),
        "weights that never change are their own average": lambda: _keeps_constants(averager),
        "it agrees with its reference": lambda: _agrees_with_reference(averager),
        "an update does not wait for the device": lambda: _does_not_wait(averager),
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


def _keeps_shapes(averager: Averager) -> Outcome:
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


def _is_alone(averager: Averager) -> Outcome:
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


def _does_not_wait(averager: Averager) -> Outcome:
    weights = path()
    started = averager.start(copied(weights[0]), SCHEDULES[0])
    state = {part: without_values(tensors) for part, tensors in started.items()}
    with no_waiting():
        averager.update(state, without_values(weights[1]), step_of(10)[0].to("meta"))
    return None
