"""A training step is captured as a CUDA graph on a GPU. Here a record of its operators stands for the graph."""

from __future__ import annotations

from functools import cache
from itertools import islice, product

import pytest
import torch
import toys
from helpers.combinations import pairwise, population
from helpers.planning import plan_of
from helpers.registries import BUILT_IN, with_model
from helpers.replay import Draws, Waits, assert_replay_is_equal
from helpers.toy_registries import toys_and
from torch import nn

from lgbench.extensions.registry import Registry
from lgbench.training.step import Gradients

PACKS_OF_MODELS = (
    "lgbench_attention",
    "lgbench_huggingface",
    "lgbench_linear",
    "lgbench_memory",
    "lgbench_positions",
    "lgbench_recurrent",
    "lgbench_x_transformers",
)
SHARES = 16


@cache
def installed() -> Registry:
    """What comes with lgbench, and the packs of models. Tasks of packs meet models in their own tests."""
    return Registry.load({"LGBENCH_PLUGINS": ",".join((*BUILT_IN, *PACKS_OF_MODELS))})


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        {"architecture": "transformer", "norm": "peri-norm", "task": "tomita-4"},
        {"architecture": "set-attention", "task": "max-retrieval"},
        {"architecture": "transformer", "position": "randomised-learned", "task": "dyck-2-3"},
    ],
)
def test_replaying_a_training_gives_the_same_bits(entry):
    assert_replay_is_equal(population(installed(), entry))


@pytest.mark.long
@pytest.mark.parametrize("share", range(SHARES))
def test_replaying_gives_the_same_bits_with_every_part_pack_optimizer_and_averager(share):
    for experiments in islice(pairwise(installed()), share, None, SHARES):
        assert_replay_is_equal(experiments)


@pytest.mark.slow
def test_every_two_things_that_can_meet_are_among_the_combinations():
    records = [experiments[0].record for experiments in pairwise(installed())]
    registry = installed()
    for kind, catalog in (
        ("architecture", registry.architectures),
        ("optimizer", registry.optimizers),
        ("norm", registry.norms),
        ("attention", registry.attentions),
        ("position", registry.positions),
    ):
        assert {getattr(record, kind) for record in records} >= set(catalog.names()) - {"hf", "abc"}  # which need a file
    assert {record.family for record in records} == {task.family for task in registry.tasks}
    met = {(record.attention, record.position) for record in records}
    missing = set(product(registry.attentions.names(), registry.positions.names())) - met
    for (attention, position), task in product(
        missing, {record.task for record in records}
    ):  # such as two that both add a bias
        assert not population(registry, dict(architecture="transformer", attention=attention, position=position, task=task))


STEPS = {"train.steps": "8", "train.batch": "2", "train.average_every": "2"}


def toys_planned(registry, arch="toy-table", averagers=("toy-mean",), optimizer="adamw"):
    return plan_of(registry, "toy-walk", arch, average=averagers, seeds=[0, 1], set=STEPS, optimizer=optimizer).experiments


def test_toys_without_a_fault_are_equal():
    assert_replay_is_equal(toys_planned(toys_and()))
    assert_replay_is_equal(toys_planned(toys_and(), averagers=()))


class Own(nn.Module):
    """A model whose logits `change` makes others, with a number of Python that counts its calls."""

    def __init__(self, change):
        super().__init__()
        self.table, self.change, self.calls = nn.Embedding(3, 3), change, 0

    def forward(self, inputs):
        self.calls += 1
        return self.change(self.table(inputs), self.calls)


def with_change(change):
    return toys_planned(with_model(lambda: Own(change)), "toy-own", ())


def test_a_number_of_python_that_changes_is_caught():
    with pytest.raises(AssertionError, match="other bits"):
        assert_replay_is_equal(with_change(lambda logits, calls: logits * calls))


class Asking(toys.Mean):
    name = "toy-asking"

    def update(self, state, weights, step):
        return super().update(state, weights, step) if self.asked(step) else state


@pytest.mark.parametrize(
    "asked",
    [
        lambda step: step.item() > 2,
        lambda step: step > 2,  # asked for its truth
        lambda step: len(step.expand(3).nonzero()),
        lambda step: torch.arange(3.0)[torch.arange(3) < step].shape,
        lambda step: torch.equal(step, step),
    ],
    ids=["item", "bool", "nonzero", "mask", "equal"],
)
def test_whatever_waits_for_the_device_is_caught(asked):
    averager = Asking()
    averager.asked = asked
    with pytest.raises(Waits, match="waits for the device"):
        assert_replay_is_equal(toys_planned(toys_and(averager=averager), averagers=["toy-asking"]))


def test_a_step_that_draws_is_caught(monkeypatch):
    """Where vmap forbids that already, the harness would train one by one."""
    ways = Gradients.__init__

    def one_by_one(self, loss, say, models):
        ways(self, loss, say, 1)

    monkeypatch.setattr(Gradients, "__init__", one_by_one)
    with pytest.raises(Draws):
        assert_replay_is_equal(with_change(lambda logits, calls: nn.functional.dropout(logits)))
