"""Entries are named by their architecture and parts, and records of one process are the same experiments in another."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
import toys
from helpers.plain_training import initial
from helpers.planning import plan_of
from helpers.toy_registries import but, toys_and

import lgbench_norms
import lgbench_optimizers
import lgbench_transformer
from lgbench import Attention, Position
from lgbench.errors import UsageError
from lgbench.execution.work_queue import PlannedPopulation
from lgbench.experiment.components import experiments_of, find_entries
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry


class Attending(Attention):
    name = "toy-attention"

    def __init__(self, width: int = 4) -> None:
        self.width = width

    def configured(self, *, width: int = 4) -> Attending:
        return Attending(width)

    def build(self, spec):
        return lgbench_transformer.Softmax().build(spec)


class Placing(Position):
    name = "toy-position"


def momentum(name: str):
    """AdamW under another name."""
    return lgbench_optimizers.AdamW(name)


LSTM = but(toys.TableArchitecture(), name="toy-lstm", defaults={"norm": "no-norm"})


@pytest.fixture(scope="module")
def known() -> Registry:
    """The toys, the built-in norms and models, a network without a norm of its own, and a part of every other kind."""
    things = {"architecture": LSTM, "attention": Attending(), "position": Placing(), "optimizer": momentum("toy-momentum")}
    registry = toys_and(**things)
    for module in (lgbench_norms, lgbench_transformer):
        assert not registry.add(module, module.__name__, Distribution("lgbench", "1")).error
    return registry


def label(said: str, registry: Registry) -> str:
    (shown,) = find_entries([said], registry)
    return shown


@pytest.mark.parametrize(
    ("said", "entry"),
    [
        ("transformer", "transformer+pre-norm"),
        ("pre-norm", "transformer+pre-norm"),
        ("softmax", "transformer+pre-norm"),
        ("nope+softmax+post-norm", "transformer+post-norm"),
        ("peri-norm", "transformer+peri-norm"),
        ("no-norm", "transformer+no-norm"),  # it has another norm of its own
        ("toy-attention", "transformer+pre-norm+toy-attention"),
        ("toy-position", "transformer+pre-norm+toy-position"),
        ("toy-position+toy-attention+peri-norm", "transformer+peri-norm+toy-attention+toy-position"),
        ("set-attention+no-norm+softmax", "set-attention"),
        ("set-attention+toy-attention", "set-attention+toy-attention"),
        ("toy-lstm+no-norm", "toy-lstm"),
        ("toy-lstm+pre-norm", "toy-lstm+pre-norm"),
        ("toy-table", "toy-table+toy-nothing"),
        ("toy-table+no-norm", "toy-table+no-norm"),
    ],
)
def test_an_entry_is_named_by_its_norm_if_it_has_one_and_by_the_parts_that_are_not_the_architectures_own(known, said, entry):
    assert label(said, known) == entry
    assert label(entry, known) == entry  # a name on a board can be typed


def test_a_name_that_is_two_kinds_of_part_is_refused_with_both():
    registry = toys_and(norm=but(toys.Nothing(), name="toy-own"), attention=but(Attending(), name="toy-own"))
    with pytest.raises(UsageError, match="a norm and of an attention"):
        label("toy-table+toy-own", registry)


def test_another_optimizer_is_another_entry_and_the_default_one_is_not_named(known):
    names = {}
    for optimizer in ("adamw", "toy-momentum"):
        (experiment,) = plan_of(known, "toy-walk", "toy-lstm", optimizer=optimizer).experiments
        assert experiment.record.optimizer == experiment.optimizer.name == optimizer
        names[optimizer] = experiment.entry, experiment.record.architecture
    assert names == {"adamw": ("toy-lstm", "toy-lstm"), "toy-momentum": ("toy-lstm+toy-momentum", "toy-lstm")}


CHANGES = {"train.steps": "7", "model.layers": "1,2"}


def test_an_experiment_is_rebuilt_from_names_and_numbers_to_the_bit(registry):
    asked = {"average": None, "seeds": (0, 3), "set": CHANGES}
    planned = plan_of(registry, ["tomita-1", "dyck-2-3"], ["peri-norm", "transformer+no-norm"], **asked).experiments
    sent = pickle.loads(pickle.dumps(PlannedPopulation.of(planned, len(planned), False)))
    again = list(experiments_of(sent.runs, sent.measurements, registry))
    assert [each.run_id for each in again] == [each.run_id for each in planned]
    for one, other in zip(planned, again, strict=True):
        assert one.record == other.record and one.population_key == other.population_key
        assert (one.plugins, one.measured_by, one.measurements) == (other.plugins, other.measured_by, other.measurements)
        weights = zip(initial(one).parameters(), initial(other).parameters(), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in weights)


@pytest.mark.parametrize("family", ["walks", "walks-2"])
def test_a_task_made_on_demand_is_a_family_of_its_own_in_results(family):
    """The task may give either as its family. As one of the family it would keep entries that lack it off the board."""

    def sibling(self, name):
        return but(toys.Walk(), name=name, family=family) if name == "walks-2" else None

    listed = [but(toys.Walk(), name=name, family="walks", sibling=sibling) for name in ("walks-1", "walks-3")]
    registry = toys_and(task=listed)
    planned = plan_of(registry, ["walks", "walks-2"], "toy-table").experiments
    assert {each.record.task: each.record.family for each in planned} == {
        "walks-1": "walks",
        "walks-2": "walks-2",
        "walks-3": "walks",
    }
    again = list(experiments_of([each.record for each in planned], ["tvd"], registry))
    assert [each.run_id for each in again] == [each.run_id for each in planned]


def test_an_entry_with_a_learning_rate_that_was_chosen_keeps_it(registry):
    (planned,) = plan_of(registry, "tomita-1", "pre-norm", protocol="standard").experiments
    asked = planned.record.tuning
    chosen = planned.tuned(replace(asked, chosen=asked.grid[0]))
    (again,) = experiments_of([chosen.record], ["tvd"], registry)
    assert again.train.lr == asked.grid[0] and again.run_id == planned.run_id


@pytest.mark.parametrize("change", [{"task_version": 99}, {"family": "other"}, {"plugins": ()}], ids=str)
def test_a_record_that_other_plugins_made_is_refused(toy_registry, change):
    (planned,) = plan_of(toy_registry, "toy-walk", "toy-table").experiments
    with pytest.raises(UsageError, match="toy-table.* on toy-walk seed 0 would be another run here than where it was planned"):
        list(experiments_of([replace(planned.record, **change)], ["tvd"], toy_registry))
