"""The cost of a training is known before anything large is allocated, and what cannot fit is refused in a sentence."""

from __future__ import annotations

import functools
import resource
from dataclasses import replace

import psutil
import pytest
import torch
import toys
from conftest import CPU, initial
from torch import nn
from toy_registries import but, toys_and

from lgbench import UsageError
from lgbench.execution.device import Execution
from lgbench.execution.memory import require_memory, training_memory
from lgbench.execution.memory import testing_memory as memory_of_testing
from lgbench.execution.progress import SilentProgress
from lgbench.execution.runner import run_plan
from lgbench.experiment.building import Trial
from lgbench.experiment.plan import Plan
from lgbench.training import cost, estimate
from lgbench.training.train import train


@pytest.fixture
def traced(monkeypatch):
    """Every step counts as large."""
    monkeypatch.setattr(estimate, "_is_small", lambda experiment, shapes: False)


def measured(experiment):
    """The cost of a step that is run."""
    return estimate.step_cost(experiment)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "arch"), [("toy-walk", "toy-table"), ("toy-largest", "toy-table")])
def test_the_cost_of_a_step_without_numbers_is_that_of_the_step(toy_registry, planned, task, arch, monkeypatch):
    (experiment,) = planned(toy_registry, task, arch, averagers=["toy-mean"])
    real = measured(experiment)
    monkeypatch.setattr(estimate, "_is_small", lambda experiment, shapes: False)
    found = estimate.step_cost(experiment)
    assert found == real


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["pre-norm", "attention-layer-norm", "set-attention"])
def test_the_cost_of_a_built_in_model_without_numbers_is_that_of_its_step(registry, planned, arch, monkeypatch):
    (experiment,) = planned(registry, "max-retrieval" if arch == "set-attention" else "tomita-4", arch, averagers=None)
    real = measured(experiment)
    monkeypatch.setattr(estimate, "_is_small", lambda experiment, shapes: False)
    found = estimate.step_cost(experiment)
    assert (found.flops, found.kept) == (real.flops, real.kept)
    assert (found.written, found.peak, found.operators) == pytest.approx((real.written, real.peak, real.operators), rel=0.05)


def test_a_batch_of_a_terabyte_is_estimated_without_taking_memory(toy_registry, planned):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", train_batch=2**20, train_max_length=64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = estimate.step_cost(experiment)
    assert found.peak > 2**20 * 64 * 4 * 4 and found.kept > 64 * 2**20 * 64 * 2 * 8
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # in kB


class Branching(toys.Table):
    """Looks at a value, as no model without numbers can."""

    def forward(self, inputs):
        if float(self.out.bias.detach().sum()) > 1e9:
            raise RuntimeError("it learned too much")
        return super().forward(inputs)


class Looping(nn.Module):
    """Goes from position to position."""

    def __init__(self, signature):
        super().__init__()
        self.table, self.out = nn.Embedding(signature.inputs.size, 4), nn.Linear(4, signature.classes)

    def forward(self, inputs):
        state, found = torch.zeros(inputs.shape[0], 4), []
        for x in self.table(inputs).unbind(1):
            state = torch.tanh(state + x)
            found.append(state)
        return self.out(torch.stack(found, 1))


@functools.cache
def kept_shift(classes):
    return torch.arange(classes) / 10


class Keeping(toys.Table):
    """Keeps a tensor in a function's cache."""

    def forward(self, inputs):
        logits = super().forward(inputs)
        return logits + kept_shift(logits.shape[-1])


def built(model):
    """The toys, and an architecture `toy-own` that builds this model."""
    own = but(toys.TableArchitecture(), name="toy-own", build=lambda self, signature, parts: model(signature, parts))
    return toys_and(architecture=own)


def test_a_model_that_branches_on_a_value_is_measured_on_small_batches(planned, traced):
    own = built(lambda signature, parts: Branching(signature, parts.norm, 1.0))
    (branching,), (plain,) = (planned(own, "toy-walk", arch, train_batch=32) for arch in ("toy-own", "toy-table"))
    found, expected = estimate.step_cost(branching), estimate.step_cost(plain)
    assert found.flops == expected.flops and found.kept == expected.kept
    assert found.peak == pytest.approx(expected.peak, rel=0.25)


@pytest.mark.slow
def test_the_cost_of_a_model_that_goes_from_position_to_position_is_extrapolated(planned, traced, monkeypatch):
    own = built(lambda signature, parts: Looping(signature))
    monkeypatch.setattr(estimate, "FIRST", 4)
    (experiment,) = planned(own, "toy-walk", "toy-own", train_max_length=24)
    exact = estimate.step_cost(experiment)
    monkeypatch.setattr(estimate, "DIRECT", 4)
    found = estimate.step_cost(experiment)
    for name in ("operators", "flops", "written", "peak", "kept"):
        assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=0.1), name


def test_a_tensor_without_numbers_never_reaches_a_training(planned, traced):
    own = built(lambda signature, parts: Keeping(signature, parts.norm, 1.0))
    (experiment,) = planned(own, "toy-walk", "toy-own", train_steps=2)
    estimate.step_cost(experiment)
    assert all(tensor.isfinite().all() for tensor in train([experiment], CPU).weights["raw"].values())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train_batch": 2**20}, ("training it takes about", "train.batch=1048576, train.max_length=5")),
        ({"evaluate_contexts": 2**20}, ("testing it takes about", "evaluate.contexts=1048576")),
        ({"evaluate_strings": 2**20}, ("testing it takes about", "evaluate.strings=1048576")),
        ({"evaluate_point_contexts": 2**20}, ("testing it takes about", "evaluate.point_contexts=1048576")),
    ],
)
def test_what_cannot_fit_even_alone_is_refused_with_what_it_takes_what_is_free_and_what_would_work(
    toy_registry, planned, settings, said
):
    (experiment,) = planned(toy_registry, "toy-even", "toy-table", evaluate_max_length=64, **settings)
    each = estimate.step_cost(experiment)
    with pytest.raises(UsageError) as refused:
        require_memory(experiment, each, 10**8)
    title = "toy-table+toy-nothing on toy-even seed 0 does not fit into memory"
    for words in (title, "0.1 GB are free", "by a factor of", *said):
        assert words in str(refused.value)
    require_memory(experiment, each, 10**12)


def test_testing_memory_grows_with_what_is_tested(toy_registry, planned):
    def memory(**changes):
        (experiment,) = planned(toy_registry, "toy-even", "toy-table", **{f"evaluate_{k}": v for k, v in changes.items()})
        return memory_of_testing(experiment)

    few, many = memory(contexts=2**12), memory(contexts=2**14)
    assert 2.5 < many / few <= 4
    assert memory(strings=2**16) > 10 * memory(strings=2**10)


def test_drawing_is_part_of_training(toy_registry, planned):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", train_batch=100)
    each = estimate.step_cost(experiment)
    answers = 64 * 100 * 6
    assert training_memory(experiment, replace(each, peak=0)) == each.kept + answers * (8 + 3 * 4 + 2 * 8)


def test_a_run_that_does_not_fit_is_refused_before_training_and_the_others_go_on(toy_registry, planned, tmp_path, monkeypatch):
    experiments = planned(toy_registry, "toy-walk", "toy-table", train_batch="4,1048576", train_steps=3)
    monkeypatch.setattr(cost, "free_memory", lambda device: 3 * 10**8)
    outcome = run_plan(Plan(experiments, ()), Execution(CPU, False), tmp_path, SilentProgress())
    (failure,) = outcome.failed
    assert len(outcome.written) == 1
    assert "failed: toy-table+toy-nothing on toy-walk seed 0 does not fit into memory: training it takes" in str(failure)
    assert ".py" not in str(failure)


def test_a_model_that_the_memory_does_not_hold_is_refused_before_it_is_built(planned):
    free = psutil.virtual_memory().total
    own = built(lambda signature, parts: nn.Linear(2**14, free // 4 // 2**14 + 1))
    with pytest.raises(UsageError, match=r"its weights take \d+ GB or more, and \d+(\.\d)? GB of memory are free: make"):
        planned(own, "toy-walk", "toy-own")


def test_a_model_of_too_many_tensors_is_refused_in_seconds(planned, monkeypatch):
    monkeypatch.setattr("lgbench.experiment.building.MAX_TENSORS", 100)
    own = built(lambda signature, parts: nn.Sequential(*(nn.Linear(2, 2) for _ in range(1000))))
    with pytest.raises(UsageError, match="it has more than 100 tensors: make the model smaller"):
        planned(own, "toy-walk", "toy-own")


def test_a_trial_leaves_the_weights_of_an_ordinary_model_as_they_are(toy_registry, planned):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table")
    with Trial():
        tried = initial(experiment)
    assert all(torch.equal(a, b) for a, b in zip(tried.parameters(), initial(experiment).parameters(), strict=True))


@pytest.mark.slow
def test_ten_thousand_seeds_build_one_model(planned):
    count = []

    def build(self, signature, parts):
        count.append(1)
        return toys.Table(signature, parts.norm, 1.0)

    own = toys_and(architecture=but(toys.TableArchitecture(), name="toy-own", build=build))
    assert len(planned(own, "toy-walk", "toy-own", seeds=range(10_000))) == 10_000
    assert len(count) == 1
