"""Results do not move: whatever path a training takes, its numbers are those of the plain one."""

from __future__ import annotations

import warnings
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from helpers.in_process import run_here
from helpers.plain_training import CPU
from helpers.registries import with_model
from helpers.trainings import resumed_at
from torch import nn
from torch.func import grad, vmap

from lgbench.contracts import Answers
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import grouped
from lgbench.experiment.experiment import Experiment
from lgbench.results import run_files
from lgbench.training import program
from lgbench.training.data import stream, training_lengths
from lgbench.training.population import Compiled, Population
from lgbench.training.train import train

WEIGHTS = 1e-5
"""A compiled step rounds in another order. After one step from the same state the weights differ by no more than this."""

TOLERANCES = {
    "tvd": 1e-4,
    "accuracy": 1 / 32 + 1e-9,
    "illegal_mass": 1e-4,
    "illegal_top": 1 / 32 + 1e-9,
    "roc_auc": 1e-3,
    "train_loss": 1e-4,
    "gradient_norm": 3e-3,
} | {"looks_ahead": 1e-6, "not_finite": 0.0}
"""Over tens of steps rounding grows, to about 1e-5 in a weight; TVD and losses are as smooth as the weights. Accuracy counts
contexts, 32 of them, and may move by one. The AUC of a language ranks hundreds of strings, and moves a little where two
have nearly one score. What follows moves the outputs of no causal model by more than rounding. A gradient norm, about 1
here, moved by 1.4e-3 with the compiler of PyTorch 2.7."""


def numbers(experiments, folder, execution) -> tuple[dict[tuple[object, ...], float | None], list[str]]:
    """Every number of the run files by what it is a number of, and what was said."""
    display = ProgressDisplay()
    display.say = (said := []).append
    outcome = run_here(experiments, execution, folder, display)
    assert not outcome.failed and len(outcome.written) == len(experiments)
    rows = [row for path in outcome.written for row in run_files.read(path).to_pylist()]
    names = ("task", "entry", "seed", "weights", "metric", "step", "length", "n")
    return {tuple(row[name] for name in names): row["value"] for row in rows}, said


SMALL = {"train_steps": 40, "train_batch": 8, "train_max_length": 12, "train_lr": "0.001,0.003"}
ONE_LENGTH = {"train_steps": 60, "train_min_length": 16, "train_max_length": 16}


@pytest.mark.long
@pytest.mark.parametrize(
    ("tasks", "arch", "settings"),
    [
        (["set-complement"], "peri-norm", SMALL),
        (["tomita-4", "tomita-1"], "peri-norm", {"train_steps": 60, "evaluate_strings": 512}),
        (["set-complement"], "pre-norm", {"train_steps": 60}),
        (["max-retrieval"], "set-attention", ONE_LENGTH),
        (["max-retrieval"], "transformer+post-norm", ONE_LENGTH),
    ],
)
def test_a_compiled_population_has_the_scores_of_models_trained_one_by_one(registry, planned, tmp_path, tasks, arch, settings):
    experiments = planned(registry, tasks, arch, seeds=(0, 1), averagers=None, **settings)
    assert len(grouped(experiments)) == 1
    plain, _ = numbers(experiments, tmp_path / "plain", Execution(CPU, compile=False, population=1))
    fast, said = numbers(experiments, tmp_path / "fast", Execution(CPU, compile=True))
    assert all(sentence.startswith(("compiling the training step", "compiled the training step")) for sentence in said)
    assert {key[3] for key in plain} == {"raw", "ema", "bema", "chance"}
    lacking = {"looks_ahead"} if experiments[0].task.signature.answers is Answers.LAST else set()
    assert {key[4] for key in plain} == TOLERANCES.keys() - lacking
    assert plain.keys() == fast.keys()
    for metric, tolerance in TOLERANCES.items():
        expected = {key: value for key, value in plain.items() if key[4] == metric}
        found = {key: fast[key] for key in expected}
        assert found == pytest.approx(expected, abs=tolerance), metric


@pytest.mark.slow
def test_one_compiled_step_agrees_with_the_plain_one_in_everything_it_changes(registry, planned):
    experiments = planned(registry, "set-complement", "peri-norm", seeds=(0, 1), model_layers=1, **SMALL)
    members = [(experiment.task, experiment.seed) for experiment in experiments]
    plain, fast = (Population(experiments, CPU) for _ in range(2))
    batches = stream(members, experiments[0].train, CPU)
    with torch.no_grad():
        for _ in range(10):
            plain.advance(*next(batches).tensors)
        for name, tensor in fast.tensors().items():
            tensor.copy_(plain.tensors()[name])
        before = {name: tensor.clone() for name, tensor in fast.tensors().items()}
        batch = next(batches).tensors
        losses, compiled_losses = plain.advance(*batch), (compiled := Compiled(fast, print))(*batch)
    assert compiled.compiles
    torch.testing.assert_close(compiled_losses, losses, rtol=0, atol=WEIGHTS)
    assert fast.state.step.item() == 11 and not torch.equal(fast.state.weights, before["weights"])
    for name, tensor in plain.tensors().items():
        assert (fast.tensors()[name] - tensor).abs().max() <= WEIGHTS, name


class Asking(nn.Module):
    """A model that asks for the number of positions."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        logits = self.model(inputs)
        return logits * 2 if inputs.shape[1] == 4 else logits


@pytest.mark.slow
@pytest.mark.parametrize("asks", [False, True])
def test_lengths_that_vary_share_a_program_which_leaves_out_one_that_the_model_asks_for(
    toy_registry, planned, monkeypatch, asks
):
    monkeypatch.setattr(program, "_LATEST", {})  # both models here have one key, which real ones never have
    if asks:
        build = Experiment.build
        monkeypatch.setattr(Experiment, "build", lambda experiment: Asking(build(experiment)))
    settings = {"train_steps": 20, "train_min_length": 4, "train_max_length": 5, "train_average_every": 2}
    experiments = planned(toy_registry, "toy-largest", "toy-table", seeds=(0, 1), averagers=["toy-mean"], **settings)
    assert set(training_lengths(experiments[0].task, experiments[0].train)) == {4, 5}
    said: list[str] = []
    plain = train(experiments, CPU)
    fast = train(experiments, CPU, compile=True, say=said.append)
    assert [sentence.partition(" in ")[0] for sentence in said] == ["compiling the training step", "compiled the training step"]
    assert fast.compiled and not plain.compiled
    assert_same_numbers(fast, plain, atol=WEIGHTS)


def assert_same_numbers(run, other, atol: float = 0) -> None:
    assert run.weights.keys() == other.weights.keys() and run.diverged == other.diverged
    for variant, weights in other.weights.items():
        for name, weight in weights.items():
            torch.testing.assert_close(run.weights[variant][name], weight, rtol=0, atol=atol)
    torch.testing.assert_close(run.curve.loss, other.curve.loss, rtol=0, atol=atol)
    torch.testing.assert_close(run.curve.gradient_norm, other.curve.gradient_norm, rtol=0, atol=atol)


class Branching(nn.Module):
    """Does another thing for other values, which no one program does."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 3)

    def forward(self, inputs):
        logits = self.table(inputs)
        return logits if logits.sum() > 0 else 2 * logits


def test_a_model_that_cannot_be_compiled_is_trained_as_it_is_and_that_is_told(planned):
    registry = with_model(Branching)
    experiments = planned(registry, "toy-walk", "toy-own", seeds=(0, 1), averagers=["toy-mean"], train_steps=10)
    said: list[str] = []
    fast = train(experiments, CPU, compile=True, say=said.append)
    assert "the training step cannot be compiled here and runs as it is" in said[0]
    assert not fast.compiled
    assert_same_numbers(fast, train(experiments, CPU))


@pytest.mark.slow
def test_a_compiled_training_in_parts_has_the_numbers_of_one_at_once(toy_registry, planned, tmp_path):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), averagers=["toy-mean"], train_steps=80)
    whole = train(experiments, CPU, compile=True)
    assert_same_numbers(resumed_at(37, experiments, tmp_path / "checkpoint", CPU, compile=True), whole)


def test_attention_that_vmap_would_run_one_by_one_is_an_error_in_tests():
    """Or the test below would prove nothing."""

    def attended(q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True).square().sum()

    with pytest.raises(UserWarning, match="batching rule"):
        vmap(grad(attended))(torch.randn(3, 2, 1, 5, 8))


@pytest.mark.slow
def test_no_built_in_model_is_run_one_by_one_in_a_population(registry, planned):
    pairs = set(product(registry.architectures.names(), registry.norms.names()))
    entries = [f"{arch}+{norm}" for arch, norm in pairs]
    tasks = ["dyck-2-3", "max-retrieval"]
    settings = {"train_steps": 1, "train_batch": 2, "model_width": 8}
    experiments = planned(registry, tasks, entries, seeds=(0, 1), averagers=None, **settings)
    placed = pairs - {("set-attention", norm) for norm in ("final-norm", "input-norm", "pre-norm")}  # no place there
    assert {(experiment.record.architecture, experiment.record.norm) for experiment in experiments} == placed
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for group in grouped(experiments):
            train(group, CPU)
    assert [str(warning.message) for warning in warned] == []
