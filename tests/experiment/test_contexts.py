"""A task is held to its own p* wherever contexts are drawn; one sentence says how it breaks it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import toys
from helpers.plain_training import CPU
from helpers.toy_registries import Marked, Weighted, but, settings

from lgbench import Batch, Random
from lgbench.errors import LgbenchError, PluginError
from lgbench.experiment.contexts import TOLERANCE, draw
from lgbench.measurement.evaluate import context_free_scores, evaluate
from lgbench.training.train import train

SOUND = [toys.Walk(), toys.Largest(), toys.Even(), Weighted(), Marked()]


@pytest.mark.parametrize("task", SOUND, ids=lambda task: task.name)
def test_a_sound_batch_comes_back_as_the_task_drew_it(task):
    found = draw(task, 6, Random(5))
    expected = task.sample(6, Random(5))
    assert torch.equal(found.inputs, expected.inputs) and torch.equal(found.distribution, expected.distribution)
    assert (found.weights is None) == (expected.weights is None)


def changed(task, change):
    """The task with another batch."""

    def sample(self, length, random):
        return change(type(task).sample(task, length, random))

    return but(task, sample=sample)


def p_star(change):
    return lambda batch: batch._replace(distribution=change(batch.distribution.clone()))


def one_answer(value):
    """The last answer of the last context is changed."""

    def change(p):
        p[-1, -1] = torch.tensor(value)
        return p

    return p_star(change)


def weights(change):
    return lambda batch: batch._replace(weights=change(batch))


BROKEN = {
    "a sum above 1": (toys.Walk(), one_answer([0.5, 0.5, 0.5]), ["1.5", "a sum of 1"]),
    "all zeros": (toys.Walk(), one_answer([0.0, 0.0, 0.0]), ["values from 0 to 1 and a sum of 0, expected"]),
    "a negative value": (toys.Walk(), one_answer([1.5, -0.5, 0.0]), ["-0.5", "1.5", "0 to 1"]),
    "no number": (toys.Walk(), one_answer([math.nan, 0.5, 0.5]), ["nan", "0 to 1"]),
    "too few classes": (toys.Walk(), p_star(lambda p: p[..., :2]), ["(5, 6, 2)", "(5, 6, 3)"]),
    "too few contexts": (toys.Walk(), p_star(lambda p: p[1:]), ["(4, 6, 3)", "(5, 6, 3)"]),
    "no dimension for answers": (toys.Largest(), p_star(lambda p: p[:, 0]), ["(5, 3)", "(5, 1, 3)"]),
    "an answer too few": (toys.Walk(), p_star(lambda p: p[:, 1:]), ["5 answers", "expected 6", "at every prefix"]),
    "an answer too many": (toys.Largest(), p_star(lambda p: p.repeat(1, 2, 1)), ["2 answers", "expected 1", "once"]),
    "a token that is none": (toys.Walk(), lambda b: b._replace(inputs=b.inputs + 1), ["from 0 to 2"]),
    "a weight below 0": (
        toys.Walk(),
        weights(lambda b: -torch.ones(5, 6)),
        ["its weights have values from -1 to -1, expected finite numbers, none below 0"],
    ),
    "an infinite weight": (Weighted(), weights(lambda b: b.weights.clone().fill_(math.inf)), ["inf, expected finite numbers"]),
    "weights of whole numbers": (Weighted(), weights(lambda b: b.weights.long()), ["torch.int64", "float32"]),
    "a p* of whole numbers": (toys.Largest(), p_star(lambda p: p.long()), ["torch.int64", "float32"]),
    "weights of another shape": (
        Weighted(),
        weights(lambda b: b.weights[:, 1:]),
        ["its weights have the shape (5, 5), expected (5, 6) for n, answers"],
    ),
    "a plain tuple": (toys.Walk(), tuple, ["`sample` gives tuple, expected lgbench.Batch: return Batch(inputs, distribution)"]),
    "marks that are missing": (Marked(), weights(lambda b: None), ["marked positions", "Batch(inputs, distribution, weights)"]),
}


@pytest.mark.parametrize(("task", "change", "said"), BROKEN.values(), ids=BROKEN)
def test_a_batch_that_breaks_its_contract_is_refused_with_the_task_the_length_and_the_reason(task, change, said):
    broken = changed(task, change)
    with pytest.raises(PluginError) as refused:
        draw(broken, 6, Random(5))
    sentence = str(refused.value)
    for words in (task.name, "length 6", *said):
        assert words in sentence
    assert isinstance(refused.value, LgbenchError) and "\n" not in sentence
    draw(broken, 6, Random(5), check=False)  # who asks for no check gets none


def test_contexts_without_positions_have_nothing_outside_its_bounds():
    batch = draw(changed(toys.Walk(), lambda batch: Batch(*(tensor[:, :0] for tensor in batch[:2]))), 6, Random(5))
    assert batch.inputs.shape[1] == 0


@pytest.mark.parametrize("off", [0.9 * TOLERANCE, -0.9 * TOLERANCE])
def test_a_sum_may_be_off_by_the_rounding_of_float32(off):
    draw(changed(toys.Walk(), one_answer([0.5, 0.5 + off, 0.0])), 6, Random(5))
    with pytest.raises(PluginError):
        draw(changed(toys.Walk(), one_answer([0.5, 0.5 + 2 * off, 0.0])), 6, Random(5))


def test_whoever_draws_contexts_holds_the_task_to_its_p_star(toy_registry, planned):
    """Training, testing and the context-free baseline: not "index out of range", nor a score."""

    experiment = replace(
        planned(toy_registry, "toy-walk", "toy-table", train_steps=2)[0], task=changed(toys.Walk(), one_answer([0.5] * 3))
    )
    model = {"raw": lambda inputs: torch.zeros(*inputs.shape, 3)}
    for draws in (
        lambda: train([experiment], CPU),
        lambda: evaluate(experiment, model, CPU),
        lambda: context_free_scores(experiment.task, experiment.measurements, *settings(1, 4, 8)),
    ):
        with pytest.raises(PluginError, match="toy-walk at length"):
            draws()
