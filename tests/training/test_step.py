"""The training step: the loss that it minimizes, optimizers of plugins, and averagers that see copies."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch
import toys
from helpers.plain_training import CPU, plain_training
from helpers.planning import plan_of
from helpers.toy_registries import Marked, Weighted, toys_and
from helpers.trainings import numbers, resumed_at

from lgbench import Optimizer, Random
from lgbench.execution.scheduler import grouped
from lgbench.extensions.loading import Distribution
from lgbench.training.population import Population
from lgbench.training.train import train

STEADY = {"train.steps": "10", "train.lr": "0.05", "train.warmup": "0", "train.batch": "8"}


def planned(known, task, seeds=(0, 1), optimizer="adamw", averagers=(), **changes):
    settings = STEADY | {key.replace("_", ".", 1): str(value) for key, value in changes.items()}
    tasks = [task] if isinstance(task, str) else task
    return plan_of(known, tasks, "toy-table", average=averagers, seeds=seeds, set=settings, optimizer=optimizer).experiments


def assert_equal_to_plain_training(experiments, optimizer_of=torch.optim.AdamW):
    run = train(experiments, CPU)
    for index, experiment in enumerate(experiments):
        *_, (model, _) = steps = list(plain_training(experiment, optimizer_of))
        for name, weight in model.named_parameters():
            torch.testing.assert_close(run.weights["raw"][name][index], weight.detach(), rtol=0, atol=1e-6)
        assert run.curve.loss[:, index].tolist() == pytest.approx([loss for _, loss in steps], abs=1e-6)


@pytest.mark.parametrize("task", ["toy-walk", "toy-largest", "toy-weighted", "toy-marked"])
@pytest.mark.parametrize("targets", ["sampled", "exact"])
def test_the_loss_is_the_weighted_cross_entropy_with_drawn_tokens_or_with_p_star_itself(double, task, targets):
    known = toys_and(task=[Weighted(), Marked()])
    assert_equal_to_plain_training(planned(known, task, train_targets=targets))


def test_a_task_with_weights_and_one_without_are_one_population_of_which_each_trains_as_alone(double):
    known = toys_and(Distribution("lgbench-toys", "1.2.3"), task=Weighted())
    mixed = planned(known, ["toy-walk", "toy-weighted"], (0,))
    assert len(grouped(mixed)) == 1
    assert_equal_to_plain_training(mixed)


class Momentum(Optimizer):
    """SGD with momentum, elementwise or parameter by parameter."""

    name = "toy-momentum"

    def __init__(self, elementwise: bool = True, seen: dict | None = None) -> None:
        self.elementwise, self.seen = elementwise, {} if seen is None else seen

    def start(self, weights):
        return {"velocity": {name: torch.zeros_like(w) for name, w in weights.items()}}

    def update(self, state, weights, gradients, lr, decay, step):
        self.seen |= {name: tuple(w.shape) for name, w in weights.items()}
        self.seen["step"] = (*self.seen.get("step", ()), step.item())
        velocity = {n: 0.9 * v + gradients[n] + decay[n] * weights[n] for n, v in state["velocity"].items()}
        return {"velocity": velocity}, {n: w - lr[n] * velocity[n] for n, w in weights.items()}


@pytest.mark.parametrize("elementwise", [True, False])
def test_an_optimizer_of_a_plugin_goes_on_from_a_checkpoint_to_the_bit(tmp_path, elementwise):
    experiments = planned(toys_and(optimizer=Momentum(elementwise)), "toy-walk", optimizer="toy-momentum")
    assert numbers(resumed_at(5, experiments, tmp_path / "checkpoint", CPU)) == numbers(train(experiments, CPU))


@pytest.mark.parametrize(
    ("elementwise", "shapes"),
    [(True, {"all": (2, 27)}), (False, {"table.weight": (2, 3, 4), "out.weight": (2, 3, 4), "out.bias": (2, 3)})],
)
def test_an_optimizer_of_a_plugin_trains_as_torchs_own_does(double, elementwise, shapes):
    """It is given one tensor where it is elementwise, each parameter by its name where it is not, and the steps from 1 on."""
    optimizer = Momentum(elementwise)
    experiments = planned(toys_and(optimizer=optimizer), "toy-walk", optimizer="toy-momentum")
    assert_equal_to_plain_training(experiments, partial(torch.optim.SGD, momentum=0.9))
    assert optimizer.seen.pop("step") == tuple(range(1, 11))
    assert optimizer.seen == shapes


def test_the_gradient_of_exact_targets_is_the_expectation_of_that_of_sampled_ones(double):
    experiments = planned(toys_and(optimizer=Momentum()), "toy-walk", (0,), "toy-momentum")
    inputs, p, _ = toys.Walk().sample(4, Random(1, 1))

    def moved(targets):
        population = Population(experiments, CPU)
        before = population.state.weights.clone()
        with torch.no_grad():
            population.advance(inputs[None], targets[None])
        return population.state.weights - before

    drawn = product(range(3), repeat=4)
    expected = sum(p[0, range(4), tokens].prod() * moved(torch.tensor([tokens])) for tokens in drawn)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(moved(p), expected, rtol=0, atol=1e-9)


class InPlace(toys.Mean):
    """Does what no averager may do: changes what it is given."""

    name = "toy-in-place"

    def start(self, weights, schedule):
        self.schedule = schedule
        state = super().start(weights, schedule)
        for weight in weights.values():
            weight.fill_(7)
        return state

    def update(self, state, weights, step):
        assert step.shape == () and step.dtype == torch.float64
        new = super().update(state, weights, step)
        for weight in weights.values():
            weight.zero_()
        return new


def test_an_averager_that_changes_what_it_is_given_moves_no_number(toy_registry):
    averager = InPlace()
    known, settings = toys_and(averager=averager), {"train_average_every": 2}
    run = train(planned(known, "toy-walk", averagers=["toy-in-place", "toy-mean"], **settings), CPU)
    plain = train(planned(toy_registry, "toy-walk", averagers=["toy-mean"], **settings), CPU)
    for variant in ("raw", "toy-mean"):
        for name, weight in plain.weights[variant].items():
            assert torch.equal(run.weights[variant][name], weight)
            assert torch.equal(run.weights["toy-in-place"][name], run.weights["toy-mean"][name])
    assert (averager.schedule.steps, averager.schedule.every) == (10, 2)
