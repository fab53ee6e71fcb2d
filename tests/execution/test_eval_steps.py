"""Models are tested at eval steps, which changes nothing of the training and is never lost."""

from __future__ import annotations

import pytest
import torch
import toys
from helpers.in_process import run_here
from helpers.plain_training import CPU
from helpers.registries import with_model
from helpers.toy_registries import METRICS, settings
from helpers.trainings import numbers, stopping_after
from torch import nn

from lgbench import UsageError
from lgbench.contracts import Answers
from lgbench.execution.device import Execution
from lgbench.execution.progress import eval_step_tokens, training_tokens
from lgbench.execution.runner import eval_steps_of, scores_at_eval_steps
from lgbench.experiment.contexts import board_lengths, eval_step_lengths, eval_steps
from lgbench.experiment.plan import Replanner, plan
from lgbench.measurement.evaluate import Extent, context_free_scores
from lgbench.options import RunOptions
from lgbench.randomness import Random, key_of
from lgbench.results import run_files
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.train import EvalSteps, train

SMALL = {"train_batch": 2, "train_average_every": 3, "train_steps": 20, "evaluate_points": 4, "evaluate_point_contexts": 6}
STRINGS = {"evaluate_point_strings": 8}


@pytest.mark.parametrize(
    ("steps", "points", "found"),
    [
        (1000, 10, [1, 3, 7, 15, 31, 62, 125, 250, 500]),
        (1024, 10, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
        (1_000_000, 10, [976, 1953, 3906, 7812, 15625, 31250, 62500, 125000, 250000, 500000]),
        (100, 3, [12, 25, 50]),
        (2, 10, [1]),
        (1, 10, []),
        (1000, 0, []),
    ],
)
def test_eval_steps_are_half_of_the_steps_and_a_quarter_and_so_on(steps, points, found):
    assert eval_steps(*settings(1, 4, 8, steps=steps, points=points)) == found


class Prefixes(toys.Walk):
    train_lengths = (0, 40)


class Sets(toys.Largest):
    train_lengths = (1, 16)


class OfItsOwn(Sets):
    lengths = (3, 7, 20, 50)


class PrefixesOfItsOwn(Prefixes):
    """Its longest tested context ends before multiples of the training length, and before the protocol's longest."""

    lengths = (10, 40, 90)


@pytest.mark.parametrize(
    ("task", "low", "trained", "longest", "most", "lengths", "drawn"),
    [
        (Prefixes(), 0, 40, 512, 160, [40, 64, 80, 128, 160], [160]),
        (Prefixes(), 0, 40, 512, 512, [40, 64, 80, 128, 160, 256, 320, 512], [512]),
        (Prefixes(), 0, 40, 128, 512, [40, 64, 80, 128], [128]),
        (Prefixes(), 0, 40, 512, 39, [32], [32]),
        (Sets(), 1, 16, 2**14, 64, [16, 32, 64], [16, 32, 64]),
        (Sets(), 1, 16, 63, 64, [16, 32, 63], [16, 32, 63]),
        (OfItsOwn(), 1, 16, 64, 64, [7, 20, 50], [7, 20, 50]),
        (OfItsOwn(), 1, 2, 64, 30, [3, 7, 20], [3, 7, 20]),
        (PrefixesOfItsOwn(), 0, 40, 512, 512, [40, 80, 90], [90]),
        (PrefixesOfItsOwn(), 0, 40, 60, 512, [40], [40]),
    ],
)
def test_eval_steps_have_lengths_of_the_end_from_the_training_length_on(task, low, trained, longest, most, lengths, drawn):
    asked = settings(low, trained, longest, steps=1000, point_max_length=most)
    assert eval_step_lengths(task, *asked) == lengths
    assert Extent.of_eval_step(task, *asked).drawn == drawn
    at_end = board_lengths(task, *asked)
    if task.signature.answers is Answers.EVERY_PREFIX:
        at_end = range(at_end[-1] + 1)
    assert set(lengths) <= set(at_end)


@pytest.fixture(scope="module", params=["prefixes", "sets", "models that diverge"])
def population(request, registry, toy_registry, planned):
    if request.param == "prefixes":
        sizes = {"train_max_length": 12, "evaluate_max_length": 32, "model_width": 8, "model_layers": 1}
        return planned(registry, ["tomita-4", "tomita-1"], "peri-norm", (0, 3), averagers=None, **SMALL, **STRINGS, **sizes)
    if request.param == "models that diverge":
        return planned(toy_registry, "toy-walk", "toy-fragile", range(4), averagers=["toy-mean"], **SMALL | {"train_steps": 90})
    sizes = {"train_max_length": 9, "evaluate_max_length": 64, "model_width": 8}
    return planned(registry, "max-retrieval", "set-attention", (0, 1), averagers=None, **SMALL, **sizes)


@pytest.fixture(scope="module")
def measured(population):
    """The population, trained and measured without a break."""
    return train(population, CPU, eval_steps=eval_steps_of(population, CPU))


@pytest.mark.slow
def test_the_weights_are_the_same_to_the_bit_with_eval_steps_and_without(population, measured):
    assert numbers(train(population, CPU)) == numbers(measured)
    assert set(measured.measured) == set(eval_steps(population[0].train, population[0].evaluate)) and measured.measured


@pytest.mark.slow
def test_a_compiled_training_has_the_same_weights_with_eval_steps_and_without(registry, planned):
    sizes = {"train_max_length": 12, "evaluate_max_length": 32, "model_width": 8, "model_layers": 1}
    population = planned(registry, "tomita-4", "peri-norm", (0, 1), averagers=None, **SMALL, **sizes)
    both = EvalSteps((), None), eval_steps_of(population, CPU)
    found = [train(population, CPU, eval_steps=own, compile=True) for own in both]
    assert found[0].compiled and found[1].compiled and found[1].measured
    assert numbers(found[0]) == numbers(found[1])


def test_a_training_that_is_stopped_anywhere_has_the_same_measurements(population, measured, tmp_path):
    checkpoint = tmp_path / "checkpoint.safetensors"
    asked = eval_steps_of(population, CPU)
    for stop in (1, 2, 5, 9, 10, 19):
        with pytest.raises(KeyboardInterrupt):
            train(population, CPU, stopping_after(stop), eval_steps=asked, checkpoint=Checkpoint(checkpoint, 0))
    resumed = train(population, CPU, eval_steps=asked, checkpoint=Checkpoint(checkpoint, 0))
    assert resumed.resumed and numbers(resumed) == numbers(measured)
    for index in range(len(population)):
        assert repr(scores_at_eval_steps(resumed, index)) == repr(scores_at_eval_steps(measured, index))


def test_what_was_measured_before_a_checkpoint_is_not_measured_again(toy_registry, planned, tmp_path):
    population = planned(toy_registry, "toy-walk", "toy-table", **SMALL)
    seen: list[int] = []
    counted = EvalSteps({2, 5, 10}, lambda models: seen.append(len(seen)) or len(seen))
    with pytest.raises(KeyboardInterrupt):
        train(population, CPU, stopping_after(7), eval_steps=counted, checkpoint=Checkpoint(tmp_path / "c", 0))
    assert train(population, CPU, eval_steps=counted, checkpoint=Checkpoint(tmp_path / "c", 0)).measured == {2: 1, 5: 2, 10: 3}


def test_numbers_of_an_eval_step_are_those_of_its_weights_computed_by_hand(registry, planned):
    """A fresh model with the weights of the moment, contexts drawn here, TVD as its definition has it."""
    sizes = {"train_max_length": 12, "evaluate_max_length": 32, "model_width": 8, "model_layers": 1}
    population = planned(registry, "tomita-4", "peri-norm", (0, 3), averagers=["ema"], **SMALL, **sizes)
    asked = eval_steps_of(population, CPU)
    kept = []

    def measure(models):
        kept.append({name: {key: w.clone() for key, w in own.items()} for name, own in models.weights.items()})
        return asked.measure(models)

    trained = train(population, CPU, eval_steps=EvalSteps(asked.steps, measure))
    last = max(asked.steps)
    for index, experiment in enumerate(population):
        found = {(s.weights, s.length): s.value for s in scores_at_eval_steps(trained, index)[last] if s.metric == "tvd"}
        key = key_of(experiment.seed, "evaluate", experiment.task.name, "contexts", 32)
        batch = experiment.task.sample(32, Random.stacked([key], 6))
        for weights in ("raw", "ema"):
            model = experiment.build().eval()
            model.load_state_dict({name: w[index] for name, w in kept[-1][weights].items()}, strict=False)
            with torch.no_grad():
                p = model(batch.inputs).double().softmax(-1)
            by_position = 0.5 * (p - batch.distribution.double()).abs().sum(-1).mean(0)
            for length in (12, 16, 24, 32):
                assert found[weights, length] == pytest.approx(by_position[length].item(), abs=1e-6)
    assert {length for _, length in found} == {12, 16, 24, 32}


class Moody(nn.Module):
    """Says in which mode it is asked, has a part that stays in evaluation mode, and keeps a table of the longest input seen."""

    seen: list[tuple[bool, bool]] = []

    def __init__(self) -> None:
        super().__init__()
        signature = toys.Walk().signature
        self.table = nn.Embedding(signature.inputs.size, signature.classes)
        self.frozen = nn.Dropout(0.5).eval()
        self.places = torch.zeros(0)

    def forward(self, inputs):
        self.seen.append((self.training, self.frozen.training))
        if len(self.places) < inputs.shape[1]:
            self.places = torch.arange(inputs.shape[1], dtype=torch.float32)
        return self.frozen(self.table(inputs)) * (1 + self.places[: inputs.shape[1], None])


def test_models_are_in_evaluation_mode_at_eval_steps_and_each_part_in_its_own_afterwards(planned):
    """The table that the model makes at an eval step, which is longer than in training, serves the training too."""
    experiments = planned(with_model(Moody), "toy-walk", "toy-own", **SMALL)
    Moody.seen.clear()
    modes: list[list[tuple[bool, bool]]] = []
    asked = eval_steps_of(experiments, CPU)

    def measure(models):
        modes.append(Moody.seen[:])
        Moody.seen.clear()
        found = asked.measure(models)
        assert set(Moody.seen) == {(False, False)}
        Moody.seen.clear()
        return found

    tested = train(experiments, CPU, eval_steps=EvalSteps(asked.steps, measure))
    assert len(modes) == 4 and all(set(before) == {(True, False)} for before in [*modes, Moody.seen])
    assert numbers(tested) == numbers(train(experiments, CPU))


def test_a_run_file_has_the_rows_of_its_eval_steps_and_of_its_end(toy_registry, planned, tmp_path):
    experiments = planned(toy_registry, "toy-even", "toy-table", averagers=["toy-mean"], **SMALL, **STRINGS)
    assert not run_here(experiments, Execution(CPU, compile=False), tmp_path).failed
    (path,) = tmp_path.glob("*.parquet")
    rows = [row for row in run_files.read(path).to_pylist() if row["length"] is not None]
    assert {row["step"] for row in rows} == {1, 2, 5, 10, 20}
    earlier = [row for row in rows if row["step"] < 20]
    assert {row["weights"] for row in earlier} == {"raw", "toy-mean"}
    assert {row["metric"] for row in earlier} == {"tvd", "accuracy", "roc_auc", "illegal_mass", "illegal_top"}
    at_end = {(row["weights"], row["metric"], row["length"]): row["on_boards"] for row in rows if row["step"] == 20}
    assert all(at_end[row["weights"], row["metric"], row["length"]] == row["on_boards"] for row in earlier)
    again = Replanner(toy_registry).experiment(experiments[0].record)
    assert again.evaluate == experiments[0].evaluate


def test_the_context_free_level_is_known_at_every_length_of_an_eval_step():
    asked = settings(0, 6, 64, steps=1000, points=3, point_contexts=4, point_max_length=48)
    without = settings(0, 6, 64, steps=1000)
    found = (context_free_scores(Prefixes(), METRICS, *each) for each in (asked, without))
    levels, shown = ({score.length: score.value for score in scores if score.metric == "tvd"} for scores in found)
    assert levels.keys() == shown.keys() | {12, 24, 48} and shown.items() <= levels.items()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("points=-1", "evaluate.points=-1 is out of range for toy-walk: it must be from 0 to 23"),
        ("point_strings=3", "evaluate.point_strings=3 is out of range for toy-walk: it must be 0, for none, or from 4 to"),
    ],
)
def test_settings_of_eval_steps_have_ranges(toy_registry, planned, change, said):
    name, _, value = change.partition("=")
    with pytest.raises(UsageError, match=said.replace("(", r"\(").replace("?", r"\?")):
        planned(toy_registry, "toy-walk", "toy-table", **{f"evaluate_{name}": value})


UNCOMPILED = 2.0
"""A token of a test takes so many times as long as one of the training, beyond the third that its pass is: measured."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["short", "standard"])
def test_eval_steps_cost_less_than_a_tenth_of_the_training(registry, protocol):
    for family in dict.fromkeys(task.family for task in registry.tasks):
        entry = "set-attention" if "retrieval" in family or "dictionary" in family else "pre-norm"
        for experiment in plan(RunOptions(family, entry, seeds=(0,), protocol=protocol, set={}), registry).experiments:
            share = UNCOMPILED * eval_step_tokens(experiment) / training_tokens(experiment)
            assert share < 0.1, (experiment.record.title, share)
