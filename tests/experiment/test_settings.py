"""Settings that `--set` changes: their ranges, the options of plugins, grids, and how runs are labelled by them."""

from __future__ import annotations

from enum import StrEnum
from math import inf, nan

import pytest
import toys
from helpers.planning import plan_of
from helpers.toy_registries import but, toys_and
from torch import nn

from lgbench import NormScheme, Unsupported, UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import ProtocolUse
from lgbench.experiment.settings import MAX_OPTION
from lgbench.extensions.registry import Registry


@pytest.mark.parametrize(
    ("task", "key", "value", "bound"),
    [
        ("toy-largest", "train.steps", "0", "from 1 to 10000000"),
        ("toy-largest", "train.lr", "-0.1", "at least 0"),
        ("toy-largest", "train.warmup", "1.5", "from 0 to 1"),
        ("toy-largest", "train.targets", "both", "sampled and exact"),
        ("toy-largest", "evaluate.strings", "3", "from 4 to 1048576"),
        ("toy-largest", "evaluate.max_length", "0", "from 1 to 1048576"),
        ("toy-walk", "train.max_length", "65", "for toy-walk: it must be from 1 to 64"),  # where it has no context
        ("toy-walk", "evaluate.max_length", "65", "for toy-walk: it must be from 1 to 64"),
    ],
)
def test_a_setting_out_of_range_names_the_option_its_value_and_the_range(toy_registry, planned, task, key, value, bound):
    with pytest.raises(UsageError) as refused:
        planned(toy_registry, task, "toy-table", **{key.replace(".", "_", 1): value})
    assert key in str(refused.value) and value in str(refused.value) and bound in str(refused.value)


def with_building(build) -> Registry:
    """The toys, and an architecture `toy-own` that builds in this way."""
    return toys_and(architecture=but(toys.TableArchitecture(), name="toy-own", build=build))


def no_model(self, signature, parts, *, layers=1, near=0, wide=True, scale=1.0):
    """For what is to be refused before a model is built."""
    raise AssertionError("a model was built")


@pytest.mark.parametrize(("name", "value"), [("layers", str(MAX_OPTION + 1)), ("near", "-1e30")])
def test_a_whole_number_of_any_size_is_refused_before_a_model_is_built(planned, name, value):
    with pytest.raises(UsageError) as refused:
        planned(with_building(no_model), "toy-walk", "toy-own", **{f"model_{name}": value})
    for said in (f"model.{name}={int(float(value))}", "toy-own", f"from -{MAX_OPTION} to {MAX_OPTION}"):
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": "0"}, "model.layers=0 is out of range for toy-own: it must be from 1 to 512"),
        ({"layers": "513"}, "model.layers=513 is out of range for toy-own: it must be from 1 to 512"),
        ({"scale": "-0.1"}, "model.scale=-0.1 is out of range for toy-own: it must be at least 0"),
    ],
)
def test_a_range_that_a_plugin_states_for_an_option_is_its_range(planned, options, said):
    own = but(toys.TableArchitecture(), name="toy-own", build=no_model, ranges={"layers": (1, 512), "scale": (0, inf)})
    with pytest.raises(UsageError) as refused:
        planned(toys_and(architecture=own), "toy-walk", "toy-own", **{f"model_{name}": text for name, text in options.items()})
    assert str(refused.value) == said


def test_a_task_brings_its_model_sizes_and_a_change_wins_over_them(planned):
    class Scaled(toys.Walk):
        name = "toy-scaled"
        model = {"scale": 2, "no_such_option": 1}

    mixed = toys_and(task=Scaled())
    own, same = (planned(mixed, "toy-scaled", "toy-table", **asked)[0].record for asked in ({}, {"model_scale": "2"}))
    assert own == same and own.run_id == same.run_id  # however the number was written
    options = dict(own.options)
    assert options["model.scale"] == 2 and options["model.wide"] is False and "model.no_such_option" not in options
    assert dict(planned(mixed, "toy-scaled", "toy-table", model_scale=2.5)[0].record.options)["model.scale"] == 2.5


class Scaling(toys.Nothing):
    """Has options of every type."""

    name = "toy-scaling"

    def __init__(self, window: int = 16, rate: float = 0.5, gated: bool = False, kind: str = "rms") -> None:
        self.options = (window, rate, gated, kind)

    def configured(self, *, window: int = 16, rate: float = 0.5, gated: bool = False, kind: str = "rms") -> NormScheme:
        if window < 1:
            raise Unsupported(f"the window is {window}, expected at least 1")
        return Scaling(window, 1 / (1 / rate), gated, kind)

    def final(self, width: int) -> nn.Module:
        return nn.RMSNorm(width)


def scaled() -> Registry:
    return toys_and(norm=Scaling())


def test_options_of_a_part_reach_it_and_stand_in_the_record_and_in_the_label(planned):
    known = scaled()
    changes = {"norm_window": "8", "norm_rate": "0.25", "norm_gated": "on", "norm_kind": "layer"}
    (experiment,) = planned(known, "toy-walk", "toy-table+toy-scaling", **changes)
    assert experiment.parts["norm"].options == (8, 0.25, True, "layer")
    assert known.norms["toy-scaling"].options == (16, 0.5, False, "rms")  # what others are given is as it was
    expected = {"norm.window": 8, "norm.rate": 0.25, "norm.gated": True, "norm.kind": "layer"}
    assert expected.items() <= dict(experiment.record.options).items()
    assert dict(experiment.record.protocol.changes) == {key: str(value) for key, value in expected.items()}
    assert experiment.entry == "toy-table+toy-scaling"


def test_options_of_the_optimizer_reach_it_and_stand_in_the_record_and_in_the_label(toy_registry, planned):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", optimizer_beta1="0.5", optimizer_epsilon="1e-8")
    assert (experiment.optimizer.beta1, experiment.optimizer.beta2) == (0.5, 0.999)
    assert dict(experiment.record.options)["optimizer.beta1"] == 0.5
    assert experiment.record.protocol.changes == (("optimizer.beta1", "0.5"),)  # the epsilon is the optimizer's own
    assert toy_registry.optimizers["adamw"].beta1 == 0.9


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"norm_windows": "8"}, ("toy-scaling", "norm.windows", "did you mean 'norm.window'?")),
        ({"norm_window": "wide"}, ("norm.window='wide'", "a whole number")),
        ({"norm_window": str(MAX_OPTION + 1)}, ("norm.window=16385", "toy-scaling", "must be from -16384 to 16384")),
        ({"norm_window": "0"}, ("toy-scaling cannot have norm.window=0: the window is 0, expected at least 1",)),
        ({"optimizer_beta3": "0.5"}, ("adamw", "optimizer.beta3", "optimizer.beta1")),
        ({"attention_window": "8"}, ("attention.window cannot be set", "toy-table takes no attention")),
    ],
)
def test_an_option_that_nothing_has_or_that_cannot_be_is_refused_with_what_would_work(planned, changes, said):
    with pytest.raises(UsageError) as refused:
        planned(scaled(), "toy-walk", "toy-table+toy-scaling", **changes)
    for words in said:
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("key", "values", "left", "said"),
    [
        ("norm.window", "0,16", 16, "toy-scaling cannot have norm.window=0: the window is 0, expected at least 1"),
        ("norm.rate", "0,0.25", 0.25, "toy-scaling cannot have norm.rate=0.0: `configured` failed with ZeroDivisionError: "),
        ("optimizer.beta1", "2,0.5", 0.5, "adamw cannot have optimizer.beta1=2.0: "),
        ("model.wide", "on,off", False, "toy-table is never wide"),
    ],
)
def test_a_value_of_a_grid_that_cannot_be_is_refused_and_the_others_are_planned(key, values, left, said):
    found = plan_of(scaled(), "toy-walk", "toy-table+toy-scaling", seeds=(0, 1), set={key: values})
    assert [experiment.seed for experiment in found.experiments] == [0, 1]
    assert {dict(experiment.record.options)[key] for experiment in found.experiments} == {left}
    (refusal,) = found.refusals
    assert refusal.startswith(f"toy-table+toy-scaling cannot be run on toy-walk: {said}")


def changes(registry: Registry, **settings: str) -> list[dict[str, str]]:
    """The changes that the labels of a grid name."""
    named = {key.replace("_", ".", 1): value for key, value in settings.items()}
    found = plan_of(registry, "toy-walk", "toy-table", set=named)
    return [dict(experiment.record.protocol.changes) for experiment in found.experiments]


def test_a_label_names_the_changed_settings_in_one_order(registry):
    labels = set()
    for asked in ({"train.steps": "5", "model.layers": "1"}, {"model.layers": "1", "train.steps": "5"}):
        (experiment,) = plan_of(registry, "tomita-1", "pre-norm", set=asked).experiments
        assert experiment.train.steps == 5 and dict(experiment.record.options)["model.layers"] == 1
        labels.add(experiment.record.protocol)
    version = PROTOCOLS["quick"].version
    assert labels == {ProtocolUse("quick", version, (("model.layers", "1"), ("train.steps", "5")))}
    assert str(*labels) == f"quick/{version} model.layers=1 train.steps=5"


def test_commas_in_a_setting_make_a_grid_and_labels_name_what_differs(toy_registry):
    assert changes(toy_registry, train_lr="1e-3,3e-3") == [{"train.lr": "0.001"}, {}]  # quick's own is 0.003
    assert changes(toy_registry, train_lr="1e-3, 2e-3", train_steps="5,7") == [
        {"train.lr": lr, "train.steps": steps} for lr in ("0.001", "0.002") for steps in ("5", "7")
    ]
    assert changes(toy_registry, model_scale="1,2") == [{}, {"model.scale": "2.0"}]


def test_a_size_of_a_task_has_the_type_of_the_option(planned):
    registry = toys_and(task=but(toys.Walk(), name="toy-sized", family="toy-sized", model={"scale": 2, "wide": "perhaps"}))
    with pytest.raises(UsageError, match="model.wide='perhaps' is not a switch: use on or off"):
        planned(registry, "toy-sized", "toy-table")
    registry = toys_and(task=but(toys.Walk(), name="toy-sized", family="toy-sized", model={"scale": 2}))
    (experiment,) = planned(registry, "toy-sized", "toy-table")
    assert repr(dict(experiment.record.options)["model.scale"]) == "2.0"


class Mode(StrEnum):
    """Option of a plugin file, which another process cannot name."""

    fast = "fast"


@pytest.mark.parametrize("default", [Mode.fast, inf, nan, None], ids=str)
def test_a_default_that_no_file_can_hold_is_refused(planned, default):
    def build(self, signature, parts, *, mode=default):
        raise AssertionError("a model was built")

    with pytest.raises(
        UsageError, match="option mode of toy-own has the default .*, expected an int, finite float, bool or str"
    ):
        planned(with_building(build), "toy-walk", "toy-own")


def test_averages_of_an_untrained_model_are_noted(toy_registry):
    asked = {"average": ["toy-mean"], "set": {"train.steps": "3", "train.average_every": "4"}}
    (note,) = plan_of(toy_registry, "toy-walk", "toy-table", **asked).notes
    assert note == "training has 3 steps, and averages, updated every 4, keep the first weights"
    assert not plan_of(toy_registry, "toy-walk", "toy-table", **asked | {"average": []}).notes
