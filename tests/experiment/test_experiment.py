"""Planning: names become objects, once, and a request becomes experiments whose every setting is known."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
import toys
from helpers.planning import plan_of
from helpers.processes import python
from helpers.toy_registries import but, toys_and

from lgbench import UsageError
from lgbench.execution.scheduler import grouped
from lgbench.execution.work_queue import path_of
from lgbench.experiment.plan import plan
from lgbench.experiment.record import ExperimentRecord
from lgbench.experiment.tuning import Tuning
from lgbench.extensions.loading import BUILT_IN, Distribution
from lgbench.extensions.registry import Registry
from lgbench.measurement.evaluate import context_free_scores
from lgbench.options import RunOptions


def entries(experiments) -> set[str]:
    return {e.entry for e in experiments}


def tasks(experiments) -> list[str]:
    return list(dict.fromkeys(e.record.task for e in experiments))


def test_a_family_means_all_its_tasks_and_a_task_itself(registry, planned):
    assert tasks(planned(registry, "tomita", "pre-norm")) == [f"tomita-{i}" for i in range(1, 8)]
    assert tasks(planned(registry, "tomita-5", "pre-norm")) == ["tomita-5"]


def test_a_task_that_is_named_twice_is_planned_once(registry, planned):
    experiments = planned(
        registry, ["tomita-5", "tomita", "tomita-5", "all"], ["pre-norm", "transformer", "transformer+pre-norm"]
    )
    assert len(experiments) == len(registry.tasks.names())
    assert len({e.run_id for e in experiments}) == len(experiments)


def test_repeated_seeds_and_averagers_count_once_in_any_order(registry):
    requests = [
        RunOptions("tomita-1", "pre-norm", average=averagers, seeds=seeds, protocol="quick")
        for averagers, seeds in ((["ema", "bema", "ema"], (1, 0, 1)), (["bema", "ema"], (1, 0)))
    ]
    assert plan(requests[0], registry).experiments == plan(requests[1], registry).experiments
    assert [e.seed for e in plan(requests[0], registry).experiments] == [1, 0]


def test_no_averager_named_means_every_one_that_comes_with_lgbench_and_no_other(registry, planned):
    assert planned(registry, "tomita-1", "pre-norm", averagers=None)[0].record.averagers == ("bema", "ema")
    assert planned(registry, "tomita-1", "pre-norm", averagers=())[0].record.averagers == ()
    for origin, averagers in ((BUILT_IN, ("own-mean",)), ("lgbench-toys", ())):
        own = toys_and(Distribution(origin, "1"), averager=OwnMean())
        assert planned(own, "toy-walk", "toy-table", averagers=None)[0].record.averagers == averagers


class OwnMean(toys.Mean):
    name = "own-mean"


def altered(value):
    """Another value of the same type."""
    match value:
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case None:
            return "x"
        case tuple():
            return (*value, ("x", "y"))
    return replace(value, **{fields(value)[0].name: altered(getattr(value, fields(value)[0].name))})


def variants(record: ExperimentRecord) -> dict[str, ExperimentRecord]:
    """The record with each field changed, and each field of its settings and its protocol."""
    names = [f.name for f in fields(record) if f.name != "tuning"]
    found = {name: replace(record, **{name: altered(getattr(record, name))}) for name in names}
    for grid, seeds, steps in (((0.1,), (7,), 5), ((0.2,), (7,), 5), ((0.1,), (8,), 5), ((0.1,), (7,), 6)):
        found[f"tuning {grid} {seeds} {steps}"] = replace(record, tuning=Tuning(grid, seeds, steps))
    for section in ("train", "evaluate", "protocol"):
        part = getattr(record, section)
        for field in fields(part):
            changed = replace(part, **{field.name: altered(getattr(part, field.name))})
            found[f"{section}.{field.name}"] = replace(record, **{section: changed})
    return found


def test_the_run_id_changes_with_any_field(registry, toy_registry, planned):
    for experiment in (
        *planned(registry, "tomita-1", "pre-norm", averagers=["ema"]),
        *planned(toy_registry, "toy-walk", "toy-table"),  # it takes no attention and no position code
    ):
        record, others = experiment.record, variants(experiment.record)
        others.pop("protocol"), others.pop("train"), others.pop("evaluate")  # their first fields are changed below
        ids = [record.run_id, *(other.run_id for other in others.values())]
        assert len(set(ids)) == len(ids) == 1 + 13 + 4 + 10 + 7 + 3
        assert all(len(i) == 16 and set(i) <= set("0123456789abcdef") for i in ids)


@pytest.mark.slow
def test_run_ids_and_context_free_levels_are_the_same_in_every_process(registry, planned):
    code = (
        "from lgbench.experiment.plan import plan; from lgbench.extensions.registry import Registry\n"
        "from lgbench.options import RunOptions\n"
        "from lgbench.measurement.evaluate import context_free_scores\n"
        "asked = {'seeds': (0, 1), 'protocol': 'quick', 'set': {'train.lr': 0.01}}\n"
        "options = RunOptions(['tomita-1', 'max-retrieval'], 'peri-norm', **asked)\n"
        "for e in plan(options, Registry.load()).experiments:\n"
        "    scores = context_free_scores(e.task, e.measurements, e.train, e.evaluate)\n"
        "    print(e.run_id, [(s.metric, s.length, s.value, s.n) for s in scores])"
    )
    here = planned(registry, ["tomita-1", "max-retrieval"], "peri-norm", averagers=None, seeds=(0, 1), train_lr="0.01")
    there = python(code, PYTHONHASHSEED="1")
    levels = [context_free_scores(e.task, e.measurements, e.train, e.evaluate) for e in here]
    told = [
        f"{e.run_id} {[(s.metric, s.length, s.value, s.n) for s in scores]}" for e, scores in zip(here, levels, strict=True)
    ]
    assert there.stdout.splitlines() == told and levels[0] and levels[-1], there.stderr


def test_experiments_are_equal_where_their_records_are(toy_registry, planned):
    one, two = (planned(toy_registry, "toy-walk", "toy-table", seeds=(0, 1)) for _ in range(2))
    assert one == two and {*one, *two} == set(one) and one[0] is not two[0]
    assert one[0] != one[1] and one[0].with_seed(1) == one[1] and one[0].with_seed(1).run_id == one[1].run_id
    assert one[0] != one[0].record


def test_plugins_that_decide_the_numbers_are_kept_apart_from_those_that_measure_them(toy_registry, planned):
    (experiment,) = planned(toy_registry, "toy-walk", "toy-table", averagers=["toy-mean"])
    assert experiment.plugins["lgbench-toys"] == "1.2.3" and set(experiment.plugins) == {"lgbench", "lgbench-toys"}
    assert set(experiment.measured_by) == {"lgbench"}


def test_an_impossible_pair_gives_its_reason_and_the_rest_is_planned(toy_registry):
    found = plan_of(toy_registry, ["toy-walk", "toy-largest"], "toy-fragile", seeds=(0, 1))
    assert [(e.record.task, e.seed) for e in found.experiments] == [("toy-walk", 0), ("toy-walk", 1)]
    assert found.refusals == (
        "toy-fragile+toy-nothing cannot be run on toy-largest: toy-fragile reads tokens, and the task has vectors",
    )


def with_batches(change) -> Registry:
    """The toys, and a task `toy-own` that changes the batches of a walk."""

    def sample(self, length, random):
        return change(toys.Walk().sample(length, random))

    return toys_and(task=but(toys.Walk(), name="toy-own", sample=sample))


def test_a_task_of_which_no_answer_counts_at_a_length_of_boards_is_refused_and_the_rest_is_planned(planned):
    def at_multiples_of_three(batch):
        weights = (torch.arange(1, batch.inputs.shape[1] + 1) % 3 == 0).float()
        return batch._replace(weights=weights.expand(batch.inputs.shape))

    known = with_batches(at_multiples_of_three)
    settings = {"train.max_length": "4"}
    found = plan_of(known, ["toy-own", "toy-walk"], "toy-table", seeds=(0, 1), set=settings)
    assert tasks(found.experiments) == ["toy-walk"]
    assert found.refusals == (
        "toy-table+toy-nothing cannot be run on toy-own: no answer of toy-own counts at a length that boards show "
        "(1, 2, 4, ...): give Task.lengths at which some count",
    )
    assert len(planned(known, "toy-own", "toy-table", train_max_length=6)) == 1  # which boards show


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (tuple, "task toy-own at length 64: `sample` gives tuple, expected lgbench.Batch: return Batch(inputs, distribution)"),
        (lambda batch: batch._replace(distribution=batch.distribution * 2), "task toy-own at length 64: p* is no probability"),
        (lambda batch: 1 / 0, "drawing contexts failed with ZeroDivisionError: division by zero"),
    ],
)
def test_a_task_that_breaks_its_contract_is_refused_and_blamed_before_anything_is_trained(change, said):
    with pytest.raises(UsageError) as refused:
        plan_of(with_batches(change), "toy-own", "toy-table")
    assert str(refused.value).startswith(f"toy-table+toy-nothing cannot be run on toy-own: {said}")


def test_a_task_without_a_context_of_the_shortest_length_in_training_names_the_setting():
    def sample(self, length, random):
        if length < 3:
            raise ValueError(f"no context has length {length}")
        return toys.Largest().sample(length, random)

    known = toys_and(task=but(toys.Largest(), name="toy-own", sample=sample))
    assert plan_of(known, "toy-own", "toy-table", set={"train.min_length": "3"}).experiments
    with pytest.raises(UsageError, match=r"a context of length 2 \(train.min_length\) failed with ValueError: no context"):
        plan_of(known, "toy-own", "toy-table", set={"train.min_length": "2"})


def test_an_error_of_an_architecture_becomes_one_line():
    def build(self, signature, parts):
        raise RuntimeError("Storage size calculation overflowed with sizes=[1, 2]\nException raised from computeStorageNbytes")

    own = toys_and(architecture=but(toys.TableArchitecture(), name="toy-own", build=build))
    with pytest.raises(UsageError) as refused:
        plan_of(own, "toy-walk", "toy-own")
    (line,) = str(refused.value).splitlines()
    for said in ("toy-own+toy-nothing", "toy-walk", "RuntimeError: Storage size calculation overflowed with sizes=[1, 2]"):
        assert said in line


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (RunOptions("tomta", "pre-norm"), "no task 'tomta'; did you mean 'tomita'?"),
        (RunOptions("tomita-9", "pre-norm"), "tomita-1 to tomita-7"),
        (RunOptions("tomita", "peri-nrom"), "did you mean 'peri-norm'?"),
        (
            RunOptions("tomita", "transfomer+pre-norm"),
            "no architecture, norm, attention or position 'transfomer'; did you mean 'transformer'?",
        ),
        (RunOptions("tomita", "transformer+pre"), "no norm, attention or position 'pre'"),
        (RunOptions("tomita", "pre-norm+transformer"), "'transformer' is an architecture, and only the first name"),
        (RunOptions("tomita", "pre-norm", average="emma"), "no averager 'emma'; did you mean 'ema'?"),
        (RunOptions("tomita", "pre-norm", average=["none", "ema"]), "--average names none and ema: use none alone"),
        (RunOptions("tomita", "pre-norm", optimizer="adam"), "no optimizer 'adam'; did you mean 'adamw'?"),
        (RunOptions("tomita", "pre-norm", protocol="quik"), "no protocol 'quik'; did you mean 'quick'?"),
        (RunOptions("tomita", "pre-norm", set={"train.step": "3"}), "did you mean 'train.steps'?"),
        (RunOptions("tomita", "pre-norm", set={"model.layer": "3"}), "did you mean 'model.layers'?"),
        (RunOptions("tomita", "pre-norm", set={"optimizer.beta": "3"}), "optimizer.beta1"),
        *(
            (RunOptions("tomita", "pre-norm", set={key: "3"}), f"no setting {key!r}; settings begin with one of train.,")
            for key in ("lr", "train.", ".steps")
        ),
        (RunOptions("tomita", "pre-norm", seeds=()), "no seed"),
        (RunOptions([], "pre-norm"), "no task"),
        (RunOptions("tomita", []), "no arch"),
    ],
)
def test_wrong_requests_say_what_would_work(registry, request_, said):
    with pytest.raises(UsageError) as refused:
        plan(request_, registry)
    assert said in str(refused.value)


@pytest.mark.parametrize(("asked", "found"), [(None, ["bema", "ema"]), ("none", []), ((), []), ("ema", ["ema"])])
def test_averages_are_those_asked_for(registry, asked, found):
    for experiment in plan_of(registry, "tomita-1", "pre-norm", average=asked).experiments:
        assert [*experiment.record.averagers] == found


def test_populations_join_seeds_and_tasks_of_one_shape_and_nothing_else(toy_registry, registry, planned, tmp_path):
    experiments = planned(toy_registry, ["toy-walk", "toy-largest"], "toy-table", seeds=(0, 1, 2))
    groups = grouped(experiments)
    assert sorted(len(group) for group in groups) == [3, 3]
    norms = planned(registry, ["tomita-1", "tomita-2"], ["pre-norm", "peri-norm"], seeds=(0, 1))
    assert sorted((len(group), len(entries(group))) for group in grouped(norms)) == [(4, 1), (4, 1)]
    assert len({path_of(e, tmp_path) for e in norms}) == len(norms)


def test_tasks_with_other_numbers_of_positions_are_trained_apart(registry, planned):
    """Strings of tomita-2 have even lengths, so its longest input is longer, and parts compute with such numbers."""
    alike, apart = ({"train_max_length": 40, "evaluate_max_length": longest} for longest in (100, 101))
    assert [len(group) for group in grouped(planned(registry, ["tomita-1", "tomita-2"], "pre-norm", **alike))] == [2]
    assert [len(group) for group in grouped(planned(registry, ["tomita-1", "tomita-2"], "pre-norm", **apart))] == [1, 1]


@pytest.mark.parametrize(
    "change",
    [{"optimizer_beta1": "0.8,0.9"}, {"model_layers": "1,2"}, {"train_targets": "sampled,exact"}, {"train_batch": "2,3"}],
)
def test_models_that_cannot_be_one_stack_are_two(registry, planned, change):
    assert [len(group) for group in grouped(planned(registry, "tomita-1", "pre-norm", seeds=(0, 1), **change))] == [2, 2]
