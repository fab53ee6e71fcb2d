"""The checks of optimizers and averagers find each breach of the contract and name it, and find nothing in what keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from helpers.breaking import OPTIONS, check_of, complaint, complaints, table, unproven
from helpers.toy_registries import but

from lgbench import Averager, Optimizer, Unsupported


@dataclass(frozen=True)
class Descent(Optimizer):
    """Gradient descent with momentum, m <- beta m + g, w <- w - lr (m + decay w), as torch.optim.SGD."""

    name: str = "descent"
    beta: float = 0.9
    nesterov: bool = False

    def configured(self, *, beta=0.9, nesterov=False):
        if not 0 <= beta < 1:
            raise Unsupported(f"beta must be in [0, 1), got {beta}")
        return replace(self, beta=beta, nesterov=nesterov)

    def start(self, weights):
        return {"momentum": {name: torch.zeros_like(w) for name, w in weights.items()}}

    def update(self, state, weights, gradients, lr, decay, step):
        momentum = {name: self.beta * m + gradients[name] for name, m in state["momentum"].items()}
        return {"momentum": momentum}, {n: w - lr[n] * (momentum[n] + decay[n] * w) for n, w in weights.items()}


class ByMatrix(Descent):
    """Gradient descent whose step has the norm of the learning rate for each parameter of each model."""

    elementwise = False

    def update(self, state, weights, gradients, lr, decay, step):
        def length(g):
            return g.reshape(len(g), -1).norm(dim=1).clamp(min=1e-12).view(-1, *[1] * (g.ndim - 1))

        return state, {n: w - lr[n] * gradients[n] / length(gradients[n]) for n, w in weights.items()}


DESCENT, BY_MATRIX = Descent(), ByMatrix()


def updating(change, thing=DESCENT):
    """The optimizer with another update: `change` gets state, weights, gradients, lr, decay and step."""
    return but(thing, update=lambda self, *given: change(*given))


def stepping(direction, thing=DESCENT):
    """An optimizer that moves weights by a function of the gradient."""
    return updating(lambda state, w, g, lr, *given: (state, {n: w[n] - lr[n] * direction(g[n]) for n in w}), thing)


def with_state(change):
    """An optimizer that gives back another state than it should."""
    return updating(lambda state, weights, *given: (change(state), weights))


def touching(change):
    """An optimizer that does something to what it is given, before its update."""

    def update(self, *given):
        change(*given)
        return DESCENT.update(*given)

    return but(DESCENT, update=update)


def changing_start(self, weights):
    weights["all"].zero_()
    return Descent.start(self, weights)


def moving_momentum(state, *given):
    state["momentum"]["all"].mul_(0.5)


def configuring(configured):
    configured.__name__ = "configured"
    return but(DESCENT, configured=configured)


def with_positional(self, beta=0.9):
    return replace(DESCENT, beta=beta)


def with_other_defaults(self, *, beta=0.5):
    return replace(DESCENT, beta=beta)


def that_is_ignored(self, *, beta=0.9):
    return replace(self)


def of_another_name(self, *, beta=0.9):
    return replace(self, beta=beta, name="descent" if beta == 0.9 else "other")


def refusing_silently(self, *, beta=0.9):
    if beta != 0.9:
        raise Unsupported("")
    return self


def changing_itself(self, *, beta=0.9):
    object.__setattr__(self, "beta", beta)
    return self


KEPT = "names, shapes and dtypes never change, and no tensor changes in place"
ITSELF = "each model is updated by itself, and each weight too if the optimizer is elementwise"
ZEROS = "a gradient of zero gives finite weights"
DOWNHILL = "steps reduce a simple loss"
WAITING = "an update does not wait for the device"

OPTIMIZERS = [
    (configuring(with_positional), OPTIONS, "`--set` cannot reach beta of configured: put a star before"),
    (configuring(with_other_defaults), OPTIONS, "`configured` with the defaults gives another thing than the plugin does"),
    (configuring(that_is_ignored), OPTIONS, "the option beta changes nothing: 0.45 gives the same as 0.9"),
    (configuring(of_another_name), OPTIONS, "`configured` with beta=0.45 gives the name 'other', expected 'descent'"),
    (configuring(changing_itself), OPTIONS, "`configured` changes the thing itself for beta: return a new one"),
    (configuring(refusing_silently), OPTIONS, "it refuses beta=0.45 without a reason: say what would work"),
    (with_state(lambda state: state | {"second": state["momentum"]}), KEPT, "after step 1 the state has other names, shapes"),
    (stepping(lambda g: g.double()), KEPT, "after step 1 the weights are {'all': '(3, 30) float64'}, expected {'all':"),
    (stepping(lambda g: g + torch.rand(())), KEPT, "it draws from torch's global generator"),
    (but(DESCENT, start=changing_start), KEPT, "it changes the weights that `start` gets in place, such as all"),
    (touching(lambda state, w, g, *given: g["all"].clamp_(-1, 1)), KEPT, "it changes the gradients in place, such as all"),
    (touching(moving_momentum), KEPT, "it changes the part 'momentum' of the state in place, such as all"),
    (stepping(lambda g: g - g.mean(0)), ITSELF, "the update of all depends on the models beside it"),
    (stepping(lambda g: g / g.norm(dim=1, keepdim=True)), ITSELF, "depends on the other weights beside it: set"),
    (stepping(lambda g: g / g.abs()), ZEROS, "gradients of zero give all values that are not finite"),
    (stepping(lambda g: -g), DOWNHILL, "100 steps with lr 0.01 change the loss w^2 / 2 from "),
    (stepping(lambda g: g * (g.abs().max() > 0).item()), WAITING, "it reads the value of a tensor, and so waits for the"),
]


class Halving(Averager):
    """The mean of the latest weights and of what was the average before: a <- (a + w) / 2."""

    name = "halving"

    def start(self, weights, schedule):
        return {"mean": weights}

    def update(self, state, weights, step):
        return {"mean": {name: (mean + weights[name]) / 2 for name, mean in state["mean"].items()}}

    def weights(self, state):
        return state["mean"]

    def reference(self, start, path, schedule):
        latest = len(path)
        return start / 2**latest + sum(weight / 2 ** (latest - i) for i, (_, weight) in enumerate(path))


class Latter(Halving):
    """The plain mean over the second half of the updates, found as a sum."""

    def start(self, weights, schedule):
        zeros = {name: torch.zeros_like(w) for name, w in weights.items()}
        device = next(iter(weights.values())).device
        half = torch.tensor(schedule.steps / 2, dtype=torch.float64, device=device)
        return {"sum": zeros, "latest": weights, "count": {"half": half, "seen": torch.zeros_like(half)}}

    def update(self, state, weights, step):
        half, seen = state["count"].values()
        late = (step > half).double()
        total = {name: s.add_(late.to(s.dtype) * weights[name]) for name, s in state["sum"].items()}
        return {"sum": total, "latest": weights, "count": {"half": half, "seen": seen + late}}

    def weights(self, state):
        seen = state["count"]["seen"]
        return {name: torch.where(seen > 0, s / seen.clamp(min=1), state["latest"][name]) for name, s in state["sum"].items()}

    def reference(self, start, path, schedule):
        late = [weight for step, weight in path if step > schedule.steps / 2]
        return sum(late) / len(late)


HALVING, LATTER = Halving(), Latter()


def of_mean(change):
    """An averager that makes something else of its average and the weights."""
    return but(
        HALVING,
        update=lambda self, state, weights, step: {
            "mean": {name: change(mean, weights[name]) for name, mean in state["mean"].items()}
        },
    )


def scaling_in_place(self, state):
    return {name: mean.mul_(0.5) for name, mean in state["mean"].items()}


AVERAGES = "names and shapes are those of the weights, a state's never change, and asking changes nothing"
AVERAGED_ALONE = "each model is averaged by itself"
CONSTANT = "weights that never change are their own average"
REFERENCE = "it agrees with its reference"

AVERAGERS = [
    (
        but(HALVING, update=lambda self, state, weights, step: state | {"latest": weights}),
        AVERAGES,
        "after step 10 the state has other names, shapes or dtypes than before",
    ),
    (but(HALVING, weights=lambda self, state: {"table": 0}), AVERAGES, "it gives the weights table, expected table, gain"),
    (but(HALVING, weights=scaling_in_place), AVERAGES, "it changes the part 'mean' of the state in place, such as table"),
    (of_mean(lambda mean, w: w / w.norm()), AVERAGED_ALONE, "table of one model depends on the models beside it: every"),
    (of_mean(lambda mean, w: 0.5 * mean + 0.6 * w), CONSTANT, "table never changed, and its average is something else"),
    (but(LATTER, reference=HALVING.reference), REFERENCE, ", and its reference is "),
    (of_mean(lambda mean, w: mean * (1 if w.sum().item() else 0)), WAITING, "it reads the value of a tensor, and so waits"),
]

ROWS = [*OPTIMIZERS, *AVERAGERS]
RIGHT = [DESCENT, BY_MATRIX, HALVING, LATTER]


@pytest.mark.parametrize(("thing", "rule", "words"), table(ROWS))
def test_a_breach_is_found_and_named(registry, thing, rule, words):
    assert words in complaint(thing, rule, registry)


def test_nothing_is_found_in_what_keeps_the_contract(registry):
    assert complaints(RIGHT, registry) == []


NOTES = [
    (but(HALVING, reference=Averager.reference), REFERENCE, "it has no `reference` to compare with"),
    (
        configuring(lambda self, *, kind="momentum": self if kind == "momentum" else None),
        OPTIONS,
        "no other value of kind was accepted",
    ),
    (configuring(lambda self: self), "its keywords are options", "`--set` does not reach beta=0.9 of "),
]


def test_every_check_of_optimizers_and_averagers_finds_or_notes_something_here(registry):
    assert unproven(RIGHT, [*ROWS, *NOTES], registry) == set()


@pytest.mark.parametrize(("thing", "rule", "words"), table(NOTES))
def test_something_allowed_and_worth_knowing_is_a_note(registry, thing, rule, words):
    assert words in check_of(thing, rule, registry)()


def test_an_averager_may_keep_and_change_the_copies_that_it_is_given(registry):
    assert complaints([of_mean(lambda mean, w: w.add_(mean).div_(2))], registry) == []
