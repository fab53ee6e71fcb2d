from __future__ import annotations

from dataclasses import fields, replace

import pytest
import toys
from breaking import but
from conftest import python
from torch import nn

from lgbench import UsageError
from lgbench.errors import PluginError
from lgbench.experiment import LARGEST_OPTION, Request, model_options, plan
from lgbench.protocols import LONGEST, MOST, PROTOCOLS
from lgbench.registry import Distribution, Registry
from lgbench.running.grid import path_of, stacks


def entries(experiments) -> set[str]:
    return {e.entry for e in experiments}


def tasks(experiments) -> list[str]:
    return list(dict.fromkeys(e.task for e in experiments))


def test_a_family_means_all_its_tasks_and_a_task_itself(registry, planned):
    assert tasks(planned(registry, "tomita", "pre-norm")) == [f"tomita-{i}" for i in range(1, 8)]
    assert tasks(planned(registry, "tomita-5", "pre-norm")) == ["tomita-5"]


def test_all_means_every_task(registry, planned):
    assert tasks(planned(registry, "all", "pre-norm")) == registry.tasks.names()


def test_a_task_that_is_named_twice_is_planned_once(registry, planned):
    experiments = planned(
        registry, ["tomita-5", "tomita", "tomita-5", "all"], ["pre-norm", "transformer", "transformer+pre-norm"]
    )
    assert len(experiments) == len(registry.tasks.names())
    assert len({e.run_id for e in experiments}) == len(experiments)


def test_repeated_seeds_and_averagers_count_once_in_any_order(registry):
    requests = [
        Request(["tomita-1"], ["pre-norm"], averagers, seeds, "quick")
        for averagers, seeds in ((["ema", "bema", "ema"], (1, 0, 1)), (["bema", "ema"], (1, 0)))
    ]
    assert plan(requests[0], registry).experiments == plan(requests[1], registry).experiments
    assert [e.seed for e in plan(requests[0], registry).experiments] == [1, 0]


def test_a_norm_alone_is_short_for_the_baseline_with_that_norm(registry, planned):
    assert planned(registry, "tomita-1", "peri-norm") == planned(registry, "tomita-1", "transformer+peri-norm")
    assert entries(planned(registry, "tomita-1", "peri-norm")) == {"transformer+peri-norm"}


def test_an_architecture_alone_takes_its_default_norm(registry, toy_registry, planned):
    assert entries(planned(registry, "tomita-1", "transformer")) == {"transformer+pre-norm"}
    assert entries(planned(toy_registry, "toy-walk", "toy-table")) == {"toy-table+toy-nothing"}


def test_no_averager_named_means_every_installed_one(registry, toy_registry, planned):
    assert planned(registry, "tomita-1", "pre-norm", averagers=None)[0].averagers == ("bema", "ema")
    assert planned(toy_registry, "toy-walk", "toy-table", averagers=None)[0].averagers == ("toy-mean",)
    assert planned(registry, "tomita-1", "pre-norm", averagers=())[0].averagers == ()


def with_file(averager: str) -> Registry:
    """The toys, and a file that provides an averager of that name."""

    class Averager(toys.Mean):
        name = averager

    class File:
        lgbench_averagers = staticmethod(toys.hookimpl(specname="lgbench_averagers")(lambda: [Averager()]))

    mixed = Registry()
    mixed.add(toys, "toys", Distribution("lgbench-toys", "1.2.3"))
    mixed.add(File(), "my_mean", Distribution("my_mean.py", "sha256:1a2b3c4d5e6f"))
    return mixed


def test_an_averager_of_a_file_is_found_and_named_by_its_label(planned):
    for name in ("my-mean", "my-mean~1a2b3c4d"):
        (experiment,) = planned(with_file("my-mean"), "toy-walk", "toy-table", averagers=[name, "toy-mean"])
        assert experiment.averagers == ("my-mean~1a2b3c4d", "toy-mean")


def test_a_label_tells_an_averager_from_another_one_of_its_name(planned):
    clashing = with_file("toy-mean")
    (experiment,) = planned(clashing, "toy-walk", "toy-table", averagers=["toy-mean~1a2b3c4d"])
    assert experiment.averagers == ("toy-mean~1a2b3c4d",)
    with pytest.raises(PluginError, match="'toy-mean' is provided by lgbench-toys 1.2.3 and my_mean.py"):
        planned(clashing, "toy-walk", "toy-table", averagers=["toy-mean"])
    with pytest.raises(UsageError, match="no averager 'toy-mean~00000000'"):
        planned(clashing, "toy-walk", "toy-table", averagers=["toy-mean~00000000"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_settings_are_those_of_the_protocol(registry, protocol):
    for experiment in plan(Request(["all"], ["pre-norm"], (), (0,), protocol), registry).experiments:
        train, evaluate = PROTOCOLS[protocol].settings(registry.tasks[experiment.task])
        assert (experiment.train, experiment.evaluate) == (train, evaluate)
        assert experiment.protocol == f"{protocol}/{PROTOCOLS[protocol].version}"
        assert experiment.task_version == registry.tasks[experiment.task].version
        assert experiment.family == registry.tasks[experiment.task].family


def test_what_is_set_stands_in_the_label_in_one_order(registry):
    labels = set()
    for changes in ({"train.steps": "5", "model.layers": "1"}, {"model.layers": "1", "train.steps": "5"}):
        (experiment,) = plan(Request(["tomita-1"], ["pre-norm"], (), (0,), "quick", changes), registry).experiments
        assert experiment.train.steps == 5 and dict(experiment.model)["layers"] == 1
        labels.add(experiment.protocol)
    assert labels == {f"quick/{PROTOCOLS['quick'].version} model.layers=1 train.steps=5"}


def test_a_task_brings_its_model_sizes_and_a_change_wins_over_them(toy_registry, planned):
    class Scaled(toys.Walk):
        name = "toy-scaled"
        model = {"scale": 2, "no_such_option": 1}

    class Plugin:
        lgbench_tasks = staticmethod(toys.hookimpl(specname="lgbench_tasks")(lambda: [Scaled()]))

    mixed = Registry()
    for module, name in ((toys, "toys"), (Plugin(), "scaled")):
        mixed.add(module, name, Distribution(name, "1"))
    assert dict(planned(mixed, "toy-scaled", "toy-table")[0].model) == {"scale": 2.0, "wide": False}
    assert dict(planned(mixed, "toy-scaled", "toy-table", model_scale=2.5)[0].model)["scale"] == 2.5


def test_the_run_id_changes_with_any_field(registry, planned):
    (experiment,) = planned(registry, "tomita-1", "pre-norm", averagers=["ema"])
    others = [
        replace(experiment, **{f.name: changed(getattr(experiment, f.name))})
        for f in fields(experiment)
        if f.name not in ("train", "evaluate")
    ]
    for section in ("train", "evaluate"):
        settings = getattr(experiment, section)
        others += [
            replace(experiment, **{section: replace(settings, **{f.name: getattr(settings, f.name) + 1})})
            for f in fields(settings)
        ]
    ids = [experiment.run_id, *(other.run_id for other in others)]
    assert len(set(ids)) == len(ids) > 18
    assert all(len(i) == 16 and set(i) <= set("0123456789abcdef") for i in ids)


def changed(value):
    if isinstance(value, int):
        return value + 1
    return value + "x" if isinstance(value, str) else ()


def test_the_run_id_is_the_same_in_every_process(registry, planned):
    code = (
        "from lgbench.experiment import *; from lgbench.registry import Registry\n"
        "request = Request(['tomita-1', 'max-retrieval'], ['peri-norm'], None, (0, 1), 'quick', {'train.lr': '0.01'})\n"
        "print(*(e.run_id for e in plan(request, Registry.load()).experiments))"
    )
    here = planned(registry, ["tomita-1", "max-retrieval"], "peri-norm", averagers=None, seeds=(0, 1), train_lr="0.01")
    there = python(code, PYTHONHASHSEED="1")
    assert there.stdout.split() == [e.run_id for e in here], there.stderr


@pytest.mark.parametrize(
    ("key", "value", "bound"),
    [
        ("train.steps", "0", "from 1 to 2147483647"),
        ("train.batch", "0", "from 1 to 2147483647"),
        ("train.batch", "-3", "from 1 to 2147483647"),
        ("train.lr", "-0.1", "at least 0"),
        ("train.weight_decay", "-1", "at least 0"),
        ("train.warmup", "1.5", "from 0 to 1"),
        ("train.warmup", "-0.5", "from 0 to 1"),
        ("train.average_every", "0", "from 1 to 2147483647"),
        ("train.min_length", "0", "from 1 to 16777216"),
        ("train.max_length", "1", "from 2 to 16777216"),
        ("evaluate.contexts", "0", "from 1 to 2147483647"),
        ("evaluate.strings", "3", "from 4 to 2147483647"),
        ("evaluate.max_length", "0", "from 1 to 16777216"),
    ],
)
def test_a_setting_out_of_range_names_the_option_its_value_and_the_range(toy_registry, planned, key, value, bound):
    with pytest.raises(UsageError) as refused:
        planned(toy_registry, "toy-largest", "toy-table", **{key.replace(".", "_", 1): value})
    assert key in str(refused.value) and value in str(refused.value) and bound in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "bound"),
    [
        ("train.min_length", "-1", "from 0 to 16777216"),
        ("train.max_length", "65", "from 1 to 64"),
        ("evaluate.max_length", "65", "from 1 to 64"),
    ],
)
def test_lengths_at_which_a_task_has_no_context_are_out_of_range(toy_registry, planned, key, value, bound):
    with pytest.raises(UsageError, match="toy-walk") as refused:
        planned(toy_registry, "toy-walk", "toy-table", **{key.replace(".", "_", 1): value})
    assert key in str(refused.value) and bound in str(refused.value)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(["tomta"], ["pre-norm"]), "no task 'tomta'; did you mean 'tomita'?"),
        (Request(["tomita-9"], ["pre-norm"]), "tomita-1 to tomita-7"),
        (Request(["tomita"], ["peri-nrom"]), "did you mean 'peri-norm'?"),
        (
            Request(["tomita"], ["transfomer+pre-norm"]),
            "no architecture, norm, attention or position 'transfomer'; did you mean 'transformer'?",
        ),
        (Request(["tomita"], ["transformer+pre"]), "no norm, attention or position 'pre'"),
        (Request(["tomita"], ["pre-norm"], ["emma"]), "no averager 'emma'; did you mean 'ema'?"),
        (Request(["tomita"], ["pre-norm"], protocol="quik"), "no protocol 'quik'; did you mean 'quick'?"),
        (Request(["tomita"], ["pre-norm"], changes={"train.step": "3"}), "did you mean 'train.steps'?"),
        (Request(["tomita"], ["pre-norm"], changes={"evaluate.context": "3"}), "did you mean 'evaluate.contexts'?"),
        (Request(["tomita"], ["pre-norm"], changes={"model.layer": "3"}), "did you mean 'model.layers'?"),
        *(
            (Request(["tomita"], ["pre-norm"], changes={key: "3"}), f"no setting {key!r}: settings begin with train.,")
            for key in ("lr", "train", "evaluate", "model", "train.", "evaluate.", "model.", ".steps")
        ),
        (Request(["tomita"], ["pre-norm"], changes={"train.steps": "many"}), "train.steps='many'"),
        (Request(["tomita"], ["pre-norm"], seeds=()), "no seed"),
    ],
)
def test_wrong_requests_say_what_would_work(registry, request_, said):
    with pytest.raises(UsageError) as refused:
        plan(request_, registry)
    assert said in str(refused.value)


def with_building(build) -> Registry:
    """The toys, and an architecture `toy-own` that builds in this way."""

    own = but(toys.TableArchitecture(), name="toy-own", build=build)

    class Plugin:
        lgbench_architectures = staticmethod(toys.hookimpl(specname="lgbench_architectures")(lambda: [own]))

    mixed = Registry()
    for module, name in ((toys, "toys"), (Plugin(), "own")):
        mixed.add(module, name, Distribution(name, "1"))
    assert not mixed.problems()
    return mixed


def no_model(self, signature, parts, *, layers=1, near=0, wide=True, scale=1.0):
    """For what is to be refused before a model is built."""
    raise AssertionError("a model was built")


@pytest.mark.parametrize(
    ("name", "value"),
    [("layers", "1e30"), ("layers", str(LARGEST_OPTION + 1)), ("near", "-1e30"), ("near", str(-LARGEST_OPTION - 1))],
)
def test_a_whole_number_of_any_size_is_refused_before_a_model_is_built(planned, name, value):
    with pytest.raises(UsageError) as refused:
        planned(with_building(no_model), "toy-walk", "toy-own", **{f"model_{name}": value})
    bound = f"it must be from -{LARGEST_OPTION} to {LARGEST_OPTION}"
    assert str(refused.value) == f"model.{name}={int(float(value))} is out of range for toy-own: {bound}"


@pytest.mark.parametrize("changes", [{"layers": LARGEST_OPTION}, {"near": -LARGEST_OPTION}, {"wide": "off"}, {"scale": 1e30}])
def test_what_is_no_larger_or_no_whole_number_reaches_the_architecture(planned, changes):
    found = {}

    def build(self, signature, parts, *, layers=1, near=0, wide=True, scale=1.0):
        found.update(layers=layers, near=near, wide=wide, scale=scale)
        return nn.Identity()

    planned(with_building(build), "toy-walk", "toy-own", **{f"model_{name}": value for name, value in changes.items()})
    expected = {name: False if value == "off" else value for name, value in changes.items()}
    assert found == {"layers": 1, "near": 0, "wide": True, "scale": 1.0} | expected


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("train.steps", MOST),
        ("train.batch", MOST),
        ("train.average_every", MOST),
        ("train.max_length", LONGEST),
        ("evaluate.contexts", MOST),
        ("evaluate.strings", MOST),
        ("evaluate.max_length", LONGEST),
    ],
)
def test_a_setting_of_any_size_is_refused_before_a_model_is_built(planned, key, most):
    for value in ("1e30", str(most + 1)):
        with pytest.raises(UsageError) as refused:
            planned(with_building(no_model), "toy-largest", "toy-own", **{key.replace(".", "_", 1): value})
        assert f"{key}={int(float(value))} is out of range for toy-largest: it must be from " in str(refused.value)
        assert str(refused.value).endswith(f" to {most}")


def test_what_an_architecture_raises_is_told_in_one_line():
    def build(self, signature, parts):
        raise RuntimeError("Storage size calculation overflowed with sizes=[1, 2]\nException raised from computeStorageNbytes")

    with pytest.raises(UsageError) as refused:
        plan(Request(["toy-walk"], ["toy-own"], (), (0,), "quick"), with_building(build))
    assert str(refused.value) == (
        "toy-own+toy-nothing cannot be run on toy-walk: building the model failed with RuntimeError: "
        "Storage size calculation overflowed with sizes=[1, 2]"
    )


def of_none(self, signature, parts, *, width: int | None = None):
    raise AssertionError("a model was built")


def of_class(self, signature, parts, *, width=8, activation=nn.GELU):
    raise AssertionError("a model was built")


def of_nothing(self, signature, parts, *, width):
    raise AssertionError("a model was built")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (of_none, "the option width of toy-own has the default None, expected an int, float, bool or str"),
        (of_class, "the option activation of toy-own has the default <class 'torch.nn.modules.activation.GELU'>, expected an"),
        (of_nothing, "the option width of toy-own has no default, expected an int, float, bool or str"),
    ],
)
def test_an_option_whose_default_says_no_type_is_refused(planned, build, said):
    own = with_building(build)
    for changes in ({}, {"model_width": "8"}):
        with pytest.raises(UsageError) as refused:
            planned(own, "toy-walk", "toy-own", **changes)
        assert said in str(refused.value)
    with pytest.raises(UsageError):
        model_options(own.architectures["toy-own"])


def test_an_impossible_pair_gives_its_reason_and_the_rest_is_planned(toy_registry):
    found = plan(Request(["toy-walk", "toy-largest"], ["toy-fragile"], (), (0, 1), "quick"), toy_registry)
    assert [(e.task, e.seed) for e in found.experiments] == [("toy-walk", 0), ("toy-walk", 1)]
    assert found.refusals == (
        "toy-fragile+toy-nothing cannot be run on toy-largest: toy-fragile reads tokens, and the task has vectors",
    )


def test_an_impossible_option_gives_its_reason(toy_registry):
    with pytest.raises(UsageError, match="toy-table is never wide"):
        plan(Request(["toy-walk"], ["toy-table"], (), (0,), "quick", {"model.wide": "on"}), toy_registry)


def test_only_impossible_pairs_are_an_error_with_every_reason(toy_registry):
    with pytest.raises(UsageError, match="cannot be run on toy-largest: toy-fragile reads tokens"):
        plan(Request(["toy-largest"], ["toy-fragile"], (), (0,), "quick"), toy_registry)


def test_planning_does_not_touch_global_randomness(registry, planned):
    import torch

    before = torch.random.get_rng_state()
    planned(registry, "all", "peri-norm")
    assert torch.equal(before, torch.random.get_rng_state())


def test_populations_join_seeds_and_tasks_of_one_shape_and_nothing_else(toy_registry, registry, planned, tmp_path):
    experiments = planned(toy_registry, ["toy-walk", "toy-largest"], "toy-table", seeds=(0, 1, 2))
    groups = stacks(experiments, toy_registry)
    assert sorted(len(group) for group in groups) == [3, 3]
    norms = planned(registry, ["tomita-1", "tomita-2"], ["pre-norm", "peri-norm"], seeds=(0, 1))
    assert sorted((len(group), len(entries(group))) for group in stacks(norms, registry)) == [(4, 1), (4, 1)]
    assert len({path_of(e, tmp_path) for e in norms}) == len(norms)
