"""The cost of a training, how it divides models into populations, and that no number depends on the division."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import CHEAP, CPU, plain_training
from torch import nn
from toy_registries import experiment_of

from lgbench.errors import UsageError
from lgbench.execution.device import Execution
from lgbench.execution.progress import SilentProgress
from lgbench.execution.runner import run_plan
from lgbench.execution.scheduler import Scheduler, grouped
from lgbench.execution.tuning import Stage
from lgbench.experiment.plan import Plan, Request, plan
from lgbench.experiment.protocols import Evaluation, Training
from lgbench.measurement.evaluate import evaluate
from lgbench.results import run_files
from lgbench.training import cost, data
from lgbench.training.cost import Cost, models_that_fit
from lgbench.training.train import step_cost, train

FLOAT, INT, DOUBLE = 4, 8, 8
"""Bytes of a number: float32, int64, float64."""


def test_flops_of_a_linear_model_are_two_for_each_product_forward_and_back():
    layer, inputs = nn.Linear(10, 5), torch.randn(100, 10)
    products = 100 * 10 * 5
    assert cost.measure(lambda: layer(inputs), kept=0).flops == 2 * products
    assert cost.measure(lambda: layer(inputs).sum().backward(), kept=0).flops == 2 * 2 * products  # and none for the inputs


def test_a_sum_writes_its_result_and_holds_it():
    a, b = torch.randn(2, 50, 10)
    assert cost.measure(lambda: a + b, kept=7) == Cost(
        operators=1, flops=0, written=500 * FLOAT, peak=500 * FLOAT, largest=500 * FLOAT, kept=7
    )


def test_temporaries_that_are_freed_lower_the_peak_and_not_what_is_written():
    a, b = torch.randn(2, 50, 10)

    def freed():
        return ((a + b) * 2).exp().sum()

    def held():
        first = a + b
        second = first * 2
        third = second.exp()
        return first, second, third, third.sum()

    size = 500 * FLOAT
    assert cost.measure(freed, 0) == Cost(operators=4, flops=0, written=3 * size + FLOAT, peak=2 * size, largest=size, kept=0)
    assert cost.measure(held, 0) == Cost(
        operators=4, flops=0, written=3 * size + FLOAT, peak=3 * size + FLOAT, largest=size, kept=0
    )


def test_a_view_of_a_result_takes_no_bytes_of_its_own():
    a, b = torch.randn(2, 50, 10)
    measured = cost.measure(lambda: (a + b).view(10, 50)[:3], 0)
    assert (measured.written, measured.peak) == (500 * FLOAT, 500 * FLOAT)


@pytest.mark.parametrize("steps", [3, 1000])
def test_weights_moments_averages_and_the_batches_drawn_ahead_are_kept(toy_registry, planned, steps):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", averagers=["toy-mean"], train_steps=steps, train_batch=7)
    weights = 3 * 4 + 4 * 3 + 3
    moving = 3 * weights * FLOAT + DOUBLE + 2 * FLOAT + INT  # AdamW's state; step; loss and norm of the curve; diverged
    curve = min(steps, 50) * 2 * FLOAT
    average = weights * FLOAT + FLOAT  # toy-mean counts what it has seen
    batches = min(steps, data.CHUNK) * 2 * (7 * 6 * INT)
    assert step_cost(experiment).kept == moving + curve + average + batches


def test_the_cost_of_a_step_is_that_of_the_longest_context(toy_registry, planned):
    short, long = (
        step_cost(planned(toy_registry, "toy-largest", "toy-table", train_max_length=length)[0]) for length in (10, 1000)
    )
    assert long.written - short.written >= 16 * 990 * 3 * FLOAT
    assert long.operators == short.operators


def test_measuring_a_step_changes_no_number_of_the_training(toy_registry, planned):
    experiments = planned(toy_registry, "toy-walk", "toy-table", train_steps=3)
    before = train(experiments, CPU).weights["raw"]
    state = torch.random.get_rng_state()
    step_cost(experiments[0])
    assert torch.equal(torch.random.get_rng_state(), state)
    after = train(experiments, CPU).weights["raw"]
    assert all(torch.equal(before[name], after[name]) for name in before)


EACH = Cost(operators=1, flops=0, written=0, peak=600, largest=1, kept=400)


@pytest.mark.parametrize(("free", "models"), [(20_000, 10), (21_999, 10), (22_000, 11), (2000, 1), (1999, 1), (0, 1)])
def test_as_many_models_fit_as_half_of_the_free_memory_holds_and_always_one(monkeypatch, free, models):
    monkeypatch.setattr(cost, "free_memory", lambda device: free)
    assert cost.SHARE_OF_MEMORY == 0.5
    assert models_that_fit(EACH, CPU) == models


def test_the_memory_that_is_free_is_some_of_the_machine():
    import psutil

    assert 0 < cost.free_memory(CPU) <= psutil.virtual_memory().total


def sizes(experiments, folder, execution) -> list[int]:
    """How many models each population has, none of which is trained."""

    def fail(group, error):
        raise error

    found = []
    for work in Scheduler(Plan(tuple(experiments), ()), folder, execution, SilentProgress(), fail):
        with work.claim as claim:
            found.append(len(claim.experiments))
    return found


@pytest.mark.parametrize(
    "numbers", [{"population": 0}, {"population": -1}, {"checkpoint": -0.1}, {"checkpoint": float("nan")}], ids=str
)
def test_numbers_that_mean_nothing_are_refused(numbers):
    with pytest.raises(UsageError, match=r"--(population|checkpoint) is (0|-1|-0.1|nan), expected .*at least [01]"):
        Execution(CPU, **numbers)


@pytest.mark.parametrize(("most", "expected"), [(1, [1] * 5), (2, [2, 2, 1]), (3, [3, 2]), (4, [3, 2]), (5, [5]), (99, [5])])
def test_populations_have_at_most_as_many_models_as_asked_for_in_equal_parts(toy_registry, planned, tmp_path, most, expected):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=range(5))
    assert sizes(experiments, tmp_path, Execution(CPU, False, population=most)) == expected


@pytest.mark.parametrize(("fit", "expected"), [(4, [4, 4, 2]), (100, [10])])
def test_populations_have_as_many_models_as_fit_into_memory(toy_registry, planned, tmp_path, monkeypatch, fit, expected):
    experiments = planned(toy_registry, "toy-walk", "toy-table", seeds=range(10))
    each = step_cost(experiments[0])
    monkeypatch.setattr(cost, "free_memory", lambda device: int(fit * (each.peak + each.kept) / cost.SHARE_OF_MEMORY) + 1)
    assert sizes(experiments, tmp_path, Execution(CPU, False)) == expected


def test_each_stack_is_divided_by_itself(toy_registry, planned, tmp_path):
    experiments = planned(toy_registry, ["toy-walk", "toy-largest"], "toy-table", seeds=range(3))
    assert sizes(experiments, tmp_path, Execution(CPU, False, population=2)) == [2, 1, 2, 1]


def rows(experiments, folder, population) -> dict[tuple[object, ...], float | None]:
    outcome = run_plan(Plan(tuple(experiments), ()), Execution(CPU, False, population), folder, SilentProgress())
    assert not outcome.failed
    found = [row for path in outcome.written for row in run_files.read(path).to_pylist()]
    names = ("task", "seed", "weights", "metric", "step", "length", "n")
    return {tuple(row[name] for name in names): row["value"] for row in found}


@pytest.mark.slow
def test_models_in_several_populations_have_the_numbers_of_one(registry, planned, tmp_path):
    """To the rounding of sums in another order."""
    settings = {key.replace(".", "_"): value for key, value in CHEAP.items()} | {"train_steps": 20, "model_layers": 1}
    experiments = planned(registry, ["tomita-1", "tomita-4"], "peri-norm", (0, 1), averagers=None, **settings)
    assert len(grouped(experiments)) == 1
    together = rows(experiments, tmp_path / "together", None)
    for population in (1, 2):
        apart = rows(experiments, tmp_path / f"{population} at a time", population)
        assert apart == pytest.approx(together, abs=1e-4)


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
    training, evaluation = Training(1, 1, 0.1, 0.0, 0.1, 1, 0, 4), Evaluation(contexts, strings, 8)
    return evaluate(experiment_of(task, training, evaluation), {"raw": model}, CPU)


@pytest.mark.parametrize("holds", [12, 6, 5, 1])
def test_a_model_that_runs_out_of_memory_is_shown_half_as_much_with_the_same_scores(toy_registry, holds):
    task = toy_registry.tasks["toy-even"]
    full = OutOfMemory(holds)
    assert evaluated(task, full) == evaluated(task, OutOfMemory(1000))
    assert max(full.shown) == 13 and min(full.shown) <= holds


@pytest.mark.parametrize("contexts", [13, 1])
def test_a_model_that_does_not_fit_for_one_context_is_an_error_that_says_so(toy_registry, contexts):
    with pytest.raises(torch.OutOfMemoryError, match="a toy's memory is full"):
        evaluated(toy_registry.tasks["toy-even"], OutOfMemory(0), contexts)


def test_strings_that_do_not_fit_are_halved_too(toy_registry):
    task = toy_registry.tasks["toy-even"]
    full = OutOfMemory(5)
    assert evaluated(task, full, contexts=1, strings=12) == evaluated(task, OutOfMemory(1000), contexts=1, strings=12)
    assert 12 in full.shown


def test_what_did_not_fit_once_is_not_tried_again(toy_registry):
    """A number of positions is remembered. The strings here are shorter than the contexts, so six of them fit."""
    full = OutOfMemory(6)
    evaluated(toy_registry.tasks["toy-even"], full, strings=6)
    assert sum(shown > 6 for shown in full.shown) == 1


@pytest.mark.parametrize(("steps", "pays"), [(100, False), (1_000_000, True)])
def test_a_long_training_is_compiled_and_a_short_one_is_not_and_the_log_says_why(registry, planned, tmp_path, steps, pays):
    experiments = planned(registry, "tomita-4", "pre-norm", train_steps=steps)
    said = []
    display = SilentProgress()
    display.say = said.append
    asked = Plan(experiments, ())
    work = next(iter(Scheduler(asked, tmp_path, Execution(CPU), display, lambda tried, error: None)))
    with work.claim:
        assert work.compile == pays
    (sentence,) = said
    needed, saved = (int(number) for number in re.findall(r"about (\d+) s", sentence))
    assert (saved > needed) == pays == sentence.startswith("compiling the training step")


@pytest.mark.slow
def test_both_stages_of_a_command_count_all_steps_that_share_programs(registry):
    """Tuning runs alone are too short. With the runs that follow, a program pays."""
    request = Request(["dictionary-lookup"], ["pre-norm"], [], range(5), "standard", {"train.steps": "1200"})
    whole = plan(request, registry)
    first = Stage(Path("none"), Path("none"), first=True).plan(whole)
    (tuning,), (runs,) = grouped(first.experiments), grouped(whole.experiments)
    assert tuning[0].population_key != runs[0].population_key and tuning[0].program_key == runs[0].program_key
    display, said = SilentProgress(), []
    display.say = said.append
    gains = [
        Scheduler(asked, Path("none"), Execution(CPU, workers=2), display, None).stacks_of(group)
        for asked, group in [
            (first, tuning),
            (replace(first, experiments=whole.experiments), runs),
            (replace(first, every=()), tuning),
        ]
    ]
    assert [gain.compile for gain in gains] == [True, True, False]
    assert gains[0].why == gains[1].why != gains[2].why
