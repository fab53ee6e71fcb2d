from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.plain_training import CPU, initial, plain_training, scores
from helpers.registries import with_model
from helpers.toy_registries import toys_and
from torch import nn

from lgbench import Averager
from lgbench.execution.scheduler import grouped
from lgbench.training.models import POINTS
from lgbench.training.train import train


def trained(experiments):
    return train(experiments, CPU)


def test_a_seed_has_the_same_numbers_alone_and_among_other_seeds_and_tasks(registry, planned):
    settings = {"train_steps": 10, "train_batch": 2, "model_width": 16, "model_layers": 1}
    settings |= {"evaluate_contexts": 4, "evaluate_strings": 8, "evaluate_max_length": 44}
    experiments = planned(registry, ["tomita-1", "tomita-4"], "peri-norm", seeds=(3, 0, 5), averagers=("ema",), **settings)
    assert len(experiments) == 6 and len(grouped(experiments)) == 1
    index = next(i for i, each in enumerate(experiments) if (each.task.name, each.seed) == ("tomita-4", 5))
    together, alone = trained(experiments), trained([experiments[index]])
    for variant in ("raw", "ema"):
        for name, weight in alone.weights[variant].items():
            torch.testing.assert_close(together.weights[variant][name][index], weight[0], rtol=1e-4, atol=2e-6)
    for curve, tolerance in (("loss", 1e-6), ("gradient_norm", 1e-5)):
        many, one = (getattr(run.curve, curve) for run in (together, alone))
        torch.testing.assert_close(many[:, index], one[:, 0], rtol=10 * tolerance, atol=tolerance)
    one, many = (scores(experiments[index], run, i) for run, i in ((alone, 0), (together, index)))
    assert one.keys() == many.keys()
    assert list(many.values()) == pytest.approx(list(one.values()), abs=1e-4)


def test_initial_weights_are_exactly_those_of_the_seed_alone(registry, planned):
    experiments = planned(registry, "tomita-4", "pre-norm", seeds=(0, 1), train_steps=1, train_lr=0.0, train_batch=1)
    together = trained(experiments)
    for index, experiment in enumerate(experiments):
        for name, weight in initial(experiment).state_dict().items():
            assert torch.equal(together.weights["raw"][name][index], weight), name


@pytest.mark.parametrize(
    ("task", "arch"),
    [("tomita-5", "transformer+peri-norm"), ("max-retrieval", "transformer+post-norm"), ("max-retrieval", "set-attention")],
)
def test_training_equals_a_plain_pytorch_loop(registry, planned, double, task, arch):
    (experiment,) = planned(registry, task, arch, train_steps=20, train_batch=4, train_weight_decay=0.1, model_width=16)
    *_, (model, _) = steps = list(plain_training(experiment))
    losses = [loss for _, loss in steps]
    run = trained([experiment])
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(run.weights["raw"][name][0], weight, rtol=0, atol=1e-7)
    assert run.curve.steps == list(range(1, 21))
    assert run.curve.loss[:, 0].tolist() == pytest.approx(losses, abs=1e-6)


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.3), (7, 1.0), (20, 0.0), (20, 0.3)])
def test_the_learning_rate_rises_linearly_and_falls_linearly(toy_registry, planned, steps, warmup):
    settings = {"train_steps": steps, "train_warmup": warmup, "train_lr": 0.05}
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", **settings)
    *_, (model, _) = plain_training(experiment)
    run = trained([experiment])
    for name, weight in model.named_parameters():
        torch.testing.assert_close(run.weights["raw"][name][0], weight.detach(), rtol=0, atol=1e-5)


def test_averagers_see_the_weights_at_every_multiple_of_average_every(toy_registry, planned):
    settings = {"train_steps": 11, "train_average_every": 3}
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), averagers=["toy-mean"], **settings)
    run = trained(experiments)
    for index, experiment in enumerate(experiments):
        seen = []
        for step, (model, _) in enumerate(plain_training(experiment), start=1):
            if step in (3, 6, 9):
                seen.append({name: p.detach().clone() for name, p in model.named_parameters()})
        for name, weight in run.weights["toy-mean"].items():
            torch.testing.assert_close(weight[index], torch.stack([w[name] for w in seen]).mean(0), rtol=0, atol=1e-5)


class Last(Averager):
    """The weights of the update before: an old tensor gets a new name."""

    name = "toy-last"

    def start(self, weights, schedule):
        return {kind: {name: w.clone() for name, w in weights.items()} for kind in ("latest", "before")}

    def update(self, state, weights, step):
        return {"latest": weights, "before": state["latest"]}

    def weights(self, state):
        return state["before"]


def test_what_an_averager_returns_may_be_an_old_tensor_of_another_name(planned):
    settings = {"averagers": ["toy-last"], "train_steps": 5, "train_average_every": 1}
    (experiment,) = planned(toys_and(averager=Last()), "toy-walk", "toy-table", **settings)
    seen = [{name: p.detach().clone() for name, p in model.named_parameters()} for model, _ in plain_training(experiment)]
    for name, weight in trained([experiment]).weights["toy-last"].items():
        torch.testing.assert_close(weight[0], seen[-2][name], rtol=0, atol=1e-5)


def test_an_averager_that_was_never_updated_gives_the_initial_weights(toy_registry, planned):
    settings = {"train_steps": 4, "train_average_every": 100}
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", averagers=["toy-mean"], **settings)
    run = trained([experiment])
    for name, weight in initial(experiment).named_parameters():
        assert torch.equal(run.weights["toy-mean"][name][0], weight)
        assert not torch.equal(run.weights["raw"][name][0], weight)


def test_global_randomness_is_neither_read_nor_set(toy_registry, planned):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), train_steps=3)
    runs = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.random.get_rng_state()
        runs.append(trained(experiments).weights["raw"])
        assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_a_diverged_model_is_marked_with_its_step_and_hurts_nobody(toy_registry, planned):
    settings = {"train_steps": 20, "train_lr": 0.02}
    experiments = planned(toy_registry, "toy-walk", "toy-fragile", seeds=range(6), **settings)
    expected = []
    for experiment in experiments:
        losses = [loss for _, loss in plain_training(experiment)]
        bad = [step for step, loss in enumerate(losses, start=1) if not np.isfinite(loss)]
        expected.append(bad[0] if bad else None)
    assert None in expected and any(expected), "the toy is meant to diverge for some seeds only"
    run = trained(experiments)
    assert run.diverged == expected
    sound = [e for e, step in zip(experiments, expected, strict=True) if step is None]
    without = trained(sound)
    kept = [i for i, step in enumerate(expected) if step is None]
    torch.testing.assert_close(
        run.weights["raw"]["table.weight"][kept], without.weights["raw"]["table.weight"], rtol=0, atol=1e-6
    )
    torch.testing.assert_close(run.curve.loss[:, kept], without.curve.loss, rtol=0, atol=1e-6)
    assert without.curve.loss.isfinite().all()


class Sharing(nn.Module):
    """One matrix as embedding and as output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, 4)
        self.out = nn.Linear(4, 3, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, inputs):
        return self.out(self.embed(inputs))


class Frozen(nn.Module):
    """A random embedding that is not to be learned."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, 4).requires_grad_(False)
        self.out = nn.Linear(4, 3)

    def forward(self, inputs):
        return self.out(self.embed(inputs))


@pytest.mark.parametrize("model", [Sharing, Frozen])
def test_shared_weights_stay_shared_and_frozen_ones_frozen(planned, model):
    registry = with_model(model)
    experiments = planned(registry, "toy-walk", "toy-own", seeds=(0, 1), train_steps=10)
    run = trained(experiments)
    inputs = torch.arange(3)[None]
    for index, experiment in enumerate(experiments):
        *_, (plain, _) = plain_training(experiment)
        torch.testing.assert_close(run.model("raw", index)(inputs), plain(inputs).detach(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("steps", [1, POINTS, 128])
def test_the_curve_has_at_most_its_points_and_ends_with_the_last_step(toy_registry, planned, steps):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), train_steps=steps, train_batch=1)
    curve = trained(experiments).curve
    assert curve.steps == sorted(set(curve.steps)) and curve.steps[-1] == steps
    assert len(curve.steps) == min(steps, POINTS)
    assert curve.loss.shape == curve.gradient_norm.shape == (len(curve.steps), 2)


def test_a_point_of_the_curve_is_the_mean_loss_of_the_steps_it_covers(toy_registry, planned):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", train_steps=120)
    losses = [loss for _, loss in plain_training(experiment)]
    curve = trained([experiment]).curve
    starts = [0, *curve.steps[:-1]]
    expected = [np.mean(losses[start:end]) for start, end in zip(starts, curve.steps, strict=True)]
    assert curve.loss[:, 0].tolist() == pytest.approx(expected, abs=1e-5)


def test_every_step_is_reported_with_a_loss(toy_registry, planned):
    (experiment,) = planned(toy_registry, "toy-largest", "toy-table", train_steps=5)
    said = []
    train([experiment], CPU, lambda step, loss: said.append((step, loss())))
    plain = [loss for _, loss in plain_training(experiment)]
    assert [step for step, _ in said] == [1, 2, 3, 4, 5]
    assert [loss for _, loss in said] == pytest.approx(plain, abs=1e-5)
