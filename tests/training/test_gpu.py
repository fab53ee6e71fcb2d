"""Tests on a GPU, which must do as a CPU does; run with `pytest -m gpu`."""

from __future__ import annotations

import os

import pytest
import torch
from helpers.planning import plan_of
from helpers.toy_registries import Weighted, toys_and
from helpers.trainings import resumed_at

from lgbench.training import cost
from lgbench.training.data import stream
from lgbench.training.population import Population
from lgbench.training.train import train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
CUDA = torch.device("cuda")


if torch.cuda.is_available():  # cuBLAS reads it once, at the first product of the process
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture
def deterministic():
    """No kernel that adds in whatever order its threads come."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def small(planned, registry, task):
    settings = {"train_steps": 30, "train_batch": 8, "train_average_every": 5}
    return planned(registry, task, "peri-norm", seeds=(0, 1, 2), averagers=("bema", "ema"), **settings)


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("task", ["tomita-4", "max-retrieval"])
def test_a_captured_training_equals_one_step_after_the_other(registry, planned, task, compile):
    experiments = small(planned, registry, task)
    said = []
    captured = train(experiments, CUDA, compile=compile, say=said.append)
    assert captured.compiled == compile and not [sentence for sentence in said if "cannot" in sentence]
    plain = Population(experiments, CUDA)
    members = [(e.task, e.seed) for e in experiments]
    with torch.no_grad():
        for step, batch in enumerate(stream(members, experiments[0].train, CUDA), start=1):
            plain.advance(*batch.tensors)
            if step % 5 == 0:
                plain.average()
    for variant, weights in plain.variants().items():
        for name, weight in weights.items():
            torch.testing.assert_close(captured.weights[variant][name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("targets", ["sampled", "exact"])
def test_weights_and_exact_targets_are_captured_too(targets):
    """Beside a training on a CPU, which has the same first weights and draws other contexts."""
    settings = {"train.steps": "300", "train.targets": targets}
    experiments = plan_of(toys_and(task=Weighted()), "toy-weighted", "toy-table", seeds=(0, 1), set=settings).experiments
    losses = [train(experiments, device).curve.loss[-5:].mean(0).cpu() for device in (CUDA, torch.device("cpu"))]
    torch.testing.assert_close(*losses, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("task", ["tomita-4", "max-retrieval"])
def test_a_training_that_was_cut_off_ends_with_the_same_bits(registry, planned, deterministic, tmp_path, task):
    experiments = small(planned, registry, task)
    whole, rest = train(experiments, CUDA), resumed_at(17, experiments, tmp_path / "state", CUDA)
    for variant, weights in whole.weights.items():
        assert all(torch.equal(rest.weights[variant][name], weight) for name, weight in weights.items())


def test_the_memory_of_a_step_is_what_was_counted(registry, planned):
    (experiment,) = planned(registry, "set-complement", "peri-norm", train_batch=256)
    each = cost.step_cost(experiment, CUDA)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    population = Population([experiment], CUDA)
    batch = next(stream([(experiment.task, experiment.seed)], experiment.train, CUDA))
    with torch.no_grad():
        population.advance(*batch.tensors)
    assert torch.cuda.max_memory_allocated() - before <= 1.5 * each.memory
    assert cost.free_memory(CUDA) > 0
