"""The cost of a training, how it divides models into populations, and that no number depends on the division."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.in_process import InProcess, run_here
from helpers.plain_training import CPU, plain_training
from helpers.planning import plan_of
from helpers.registries import BUILT_IN, with_things
from helpers.toy_registries import experiment_of, settings
from torch import Tensor, nn

from lgbench import Position
from lgbench.execution.command import LearningRates
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import Scheduler, grouped
from lgbench.execution.workers import Setup
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import evaluate
from lgbench.training import cost, data
from lgbench.training.cost import step_cost
from lgbench.training.train import train

FLOAT, INT, DOUBLE = 4, 8, 8
"""Bytes of a number: float32, int64, float64."""


def test_a_step_that_frees_its_temporaries_holds_less_at_once():
    a, b = torch.randn(2, 50, 10)

    def freed():
        return ((a + b) * 2).exp().sum()

    def held():
        first = a + b
        second = first * 2
        third = second.exp()
        return first, second, third, third.sum()

    size = 500 * FLOAT
    for function, peak in ((freed, 2 * size), (held, 3 * size + FLOAT)):
        with cost.Meter() as meter:
            function()
        assert (meter.peak, meter.largest) == (peak, size)


def test_a_view_of_a_result_takes_no_bytes_of_its_own():
    a, b = torch.randn(2, 50, 10)
    with cost.Meter() as meter:
        (a + b).view(10, 50)[:3]
    assert meter.peak == 500 * FLOAT


@pytest.mark.parametrize("steps", [3, 1000])
def test_weights_moments_averages_and_the_batches_drawn_ahead_are_kept(toy_registry, planned, steps):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", averagers=["toy-mean"], train_steps=steps, train_batch=7)
    weights = 3 * 4 + 4 * 3 + 3
    moving = 3 * weights * FLOAT + DOUBLE + 2 * FLOAT + INT  # AdamW's state; step; loss and norm of the curve; diverged
    buffer = FLOAT  # toy-table's scale
    curve = min(steps, 50) * 2 * FLOAT
    average = weights * FLOAT + FLOAT  # toy-mean counts what it has seen
    batches = min(steps, data.CHUNK) * 2 * (7 * 6 * INT)
    assert step_cost(experiment, CPU).kept == moving + buffer + curve + average + batches


def test_the_memory_of_a_step_is_that_of_the_longest_context(toy_registry, planned):
    short, long = (
        step_cost(planned(toy_registry, "toy-walk", "toy-table", train_max_length=length)[0], CPU) for length in (4, 64)
    )
    assert long.peak - short.peak >= 16 * 60 * 3 * FLOAT


def test_measuring_a_step_changes_no_number_of_the_training(toy_registry, planned):
    experiments = planned(toy_registry, "toy-walk", "toy-table", train_steps=3)
    before = train(experiments, CPU).weights["raw"]
    state = torch.random.get_rng_state()
    step_cost(experiments[0], CPU)
    assert cost.step_seconds(experiments, CPU) > 0
    assert torch.equal(torch.random.get_rng_state(), state)
    after = train(experiments, CPU).weights["raw"]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_that_does_not_fit_into_memory_is_refused_in_a_sentence_and_the_others_go_on(
    toy_registry, planned, tmp_path, monkeypatch
):
    experiments = planned(toy_registry, "toy-walk", "toy-table", train_batch="4,16384", train_steps=3)
    monkeypatch.setattr(cost, "free_memory", lambda device: 2 * 10**6)
    outcome = run_here(experiments, Execution(CPU, False), tmp_path)
    (failure,) = outcome.failed
    assert len(outcome.written) == 1
    for words in (
        "toy-table+toy-nothing on toy-walk seed 0 does not fit into memory: a training step of one model takes more",
        "than the 2 MB that are free",
        "with train.batch=16384, train.max_length=6; lower one of these",
    ):
        assert words in str(failure)
    assert ".py" not in str(failure)


def sizes(experiments, folder, execution) -> list[int]:
    """How many models each population has, none of which is trained."""
    found = []

    class Counting(InProcess):
        def submit(self, job):
            found.append(len(job.population.runs))
            return super().submit(job)

    assert not run_here(experiments, execution, folder, kind=lambda train: Counting(lambda job: iter(()))).failed
    return found


@pytest.mark.parametrize(("most", "expected"), [(1, [1] * 5), (2, [2, 2, 1]), (4, [3, 2]), (99, [5])])
def test_populations_have_at_most_as_many_models_as_asked_for_in_equal_parts(toy_registry, planned, tmp_path, most, expected):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=range(5))
    assert sizes(experiments, tmp_path, Execution(CPU, False, population=most)) == expected


@pytest.mark.parametrize(("fit", "expected"), [(4, [4, 4, 2]), (100, [10])])
def test_populations_have_as_many_models_as_fit_into_memory(toy_registry, planned, tmp_path, monkeypatch, fit, expected):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=range(10))
    each = step_cost(experiments[0], CPU)
    monkeypatch.setattr(cost, "free_memory", lambda device: int(fit * each.memory / cost.SHARE_OF_MEMORY) + 1)
    assert sizes(experiments, tmp_path, Execution(CPU, False)) == expected


def test_a_population_that_mixes_rates_decays_and_warmups_trains_each_as_it_would_be_alone(toy_registry, planned):
    grid = {"train_lr": "0.003,0.03", "train_weight_decay": "0,0.5", "train_warmup": "0,0.1,1"}
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1), train_steps=30, **grid)
    assert len(experiments) == 24 and len(grouped(experiments)) == 1
    run = train(experiments, CPU)
    for index, experiment in enumerate(experiments):
        *_, (model, loss) = plain_training(experiment)
        for name, weight in model.named_parameters():
            torch.testing.assert_close(run.weights["raw"][name][index], weight.detach(), rtol=0, atol=1e-5)
        assert run.curve.loss[-1, index].item() == pytest.approx(loss, abs=1e-5)
    ends = {run.weights["raw"]["out.weight"][index].sum().item() for index in range(24)}
    assert len(ends) == 24  # or equal settings would prove nothing


class OutOfMemory:
    """A model on a device that holds so many contexts at once."""

    def __init__(self, holds: int) -> None:
        self.holds, self.shown = holds, []

    def __call__(self, inputs):
        self.shown.append(len(inputs))
        if len(inputs) > self.holds:
            raise torch.OutOfMemoryError("a toy's memory is full")
        return torch.stack([torch.cos(inputs.cumsum(-1) * (answer + 1.3)) for answer in range(3)], -1)


def evaluated(task, model, contexts: int = 13, strings: int = 12):
    return evaluate(experiment_of(task, *settings(0, 4, 8, contexts, strings)), {"raw": model}, CPU)


@pytest.mark.parametrize("holds", [6, 1])
def test_a_model_that_runs_out_of_memory_is_shown_half_as_much_with_the_same_scores(toy_registry, holds):
    task = toy_registry.tasks["toy-even"]
    full = OutOfMemory(holds)
    assert evaluated(task, full) == evaluated(task, OutOfMemory(1000))
    assert max(full.shown) == 13 and min(full.shown) <= holds


@pytest.mark.parametrize("contexts", [13, 1])
def test_a_model_that_does_not_fit_for_one_context_is_an_error_that_says_so(toy_registry, contexts):
    with pytest.raises(torch.OutOfMemoryError, match="a toy's memory is full"):
        evaluated(toy_registry.tasks["toy-even"], OutOfMemory(0), contexts)


class Looped(nn.Module):
    """Embeddings as they are, position by position."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[..., place, :] for place in range(x.shape[-2])], -2)


class Loops(Position):
    """Position code with a loop over positions."""

    name = "loops"

    def embed(self, width: int, positions: int) -> nn.Module:
        return Looped()


@pytest.mark.parametrize(
    ("task", "arch", "protocol", "pays"),
    [
        ("dyck-2-3", "pre-norm", "quick", False),
        ("dyck-2-3", "pre-norm", "short", True),
        pytest.param("max-retrieval", "pre-norm", "short", True, marks=pytest.mark.slow),  # one program for all lengths
        pytest.param("max-retrieval", "pre-norm+loops", "short", False, marks=pytest.mark.slow),  # a program for each length
        ("max-retrieval", "pre-norm+loops", "standard", True),
    ],
)
def test_compiling_follows_from_the_steps_for_each_program(task, arch, protocol, pays):
    registry = with_things(Registry.load({"LGBENCH_PLUGINS": ",".join(BUILT_IN)}), position=Loops())
    shorter_tests = {"evaluate.max_length": "48"}
    experiment = plan_of(registry, task, arch, protocol=protocol, set=shorter_tests).experiments[0]
    assert cost.compiling_pays(experiment, CPU) == pays
    assert not cost.compiling_pays(experiment, torch.device("mps"))


@pytest.mark.parametrize(("task", "models"), [("tomita-4", [2, 12]), ("max-retrieval", [1, 12])])
def test_few_models_share_a_compiled_step_and_one_has_a_program_for_all_lengths(registry, task, models):
    """Where steps are not compiled all twelve train together: starting the operators takes most of such a step."""
    experiments = plan_of(registry, task, "pre-norm", seeds=range(12), protocol="standard").experiments
    found = []
    for compile in (True, False):
        scheduler = Scheduler(experiments, Setup(Path("none"), Execution(CPU, compile)), ProgressDisplay(), experiments)
        found.append(scheduler.stacking_of(list(experiments)).models)
    assert found == models


def test_tuning_runs_are_compiled_where_the_runs_that_follow_are(registry):
    """Tuning runs alone are too short for a program."""
    whole = plan_of(registry, "set-complement", "pre-norm", protocol="standard", set={"train.steps": "600"})
    rates = LearningRates(whole.experiments, Path("none"))
    (tuning,), (runs,) = grouped(rates.due()), grouped(whole.experiments)
    assert tuning[0].population_key != runs[0].population_key and tuning[0].program_key == runs[0].program_key
    setup = Setup(Path("none"), Execution(CPU))
    schedulers = [Scheduler(group, setup, ProgressDisplay(), rates.every) for group in (tuning, runs)]
    chosen = [scheduler.stacking_of(scheduler.experiments).compile for scheduler in schedulers]
    assert chosen == [True, True] and not cost.compiling_pays(tuning[0], CPU)
