from __future__ import annotations

from dataclasses import fields, replace

import pyarrow as pa
import pytest
import toys
from helpers.toy_registries import but

from lgbench import Budget, UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.experiment.record import Evaluation, Training
from lgbench.experiment.settings import MAX_AT_ONCE, MAX_LENGTH, MAX_STEPS, check_settings, override, parse_value
from lgbench.results.file_format import SCHEMA


@pytest.mark.parametrize(
    ("text", "like", "value"),
    [
        ("5", 1, 5),
        ("1e3", 1, 1000),
        (" 7 ", 1, 7),
        ("-2", 1, -2),
        ("3", 1.0, 3.0),
        ("on", False, True),
        ("TRUE", False, True),
        ("1", False, True),
        ("off", True, False),
        ("0", True, False),
        ("gelu", "relu", "gelu"),
    ],
)
def test_text_becomes_a_value_of_the_type_of_the_default(text, like, value):
    found = parse_value("model.x", text, like)
    assert found == value and type(found) is type(like)


@pytest.mark.parametrize(
    ("text", "like", "expected"),
    [
        ("1.5", 1, "a whole number"),
        ("inf", 1, "a whole number"),
        ("", 1, "a whole number"),
        ("nan", 1.0, "a finite number"),
        ("-inf", 1.0, "a finite number"),
        ("fast", 1.0, "a finite number"),
        ("2", True, "on or off"),
    ],
)
def test_text_of_another_type_is_refused_with_the_option_and_what_would_work(text, like, expected):
    with pytest.raises(UsageError, match="train.x") as refused:
        parse_value("train.x", text, like)
    assert expected in str(refused.value) and repr(text) in str(refused.value)


def test_a_task_brings_its_own_budget_and_its_longest_context():
    class Budgeted(toys.Walk):
        budgets = {"quick": Budget(steps=7, lr=1), "standard": Budget(max_length=1000)}

    quick, quick_test = PROTOCOLS["quick"].settings(Budgeted())
    assert (quick.steps, quick.lr, quick.batch) == (7, 1.0, PROTOCOLS["quick"].train.batch)
    assert isinstance(quick.lr, float)  # as --set train.lr=1 is, or they would be two runs
    assert (quick.min_length, quick.max_length) == Budgeted.train_lengths
    assert quick_test.max_length == Budgeted.max_length == 64  # the protocol's 128 does not exist
    standard, standard_test = PROTOCOLS["standard"].settings(Budgeted())
    assert standard.steps == PROTOCOLS["standard"].train.steps
    assert standard_test.max_length == 64


def test_a_task_tested_far_beyond_its_training_is_measured_at_its_first_length_on_the_way():
    task = but(toys.Walk(), lengths=(50, 64))
    for protocol in PROTOCOLS.values():
        check_settings(task, *protocol.settings(task))


@pytest.mark.parametrize("task", [toys.Walk(), toys.Largest()], ids=lambda task: task.name)
def test_no_whole_number_is_too_large_to_be_stored(task):
    train, evaluate = PROTOCOLS["quick"].settings(task)
    for settings in (train, evaluate):
        for field in (field for field in fields(settings) if isinstance(getattr(settings, field.name), int)):
            changed = replace(settings, **{field.name: 2**31})
            with pytest.raises(UsageError, match=rf"{field.name}=2147483648 is out of range for {task.name}: it must be from "):
                check_settings(task, *((changed, evaluate) if settings is train else (train, changed)))


def test_the_largest_settings_are_in_range():
    train, evaluate = PROTOCOLS["quick"].settings(toys.Largest())
    lengths = {"min_length": MAX_LENGTH, "max_length": MAX_LENGTH}
    train = replace(train, steps=MAX_STEPS, batch=MAX_AT_ONCE, average_every=MAX_STEPS, **lengths)
    check_settings(toys.Largest(), train, replace(evaluate, contexts=MAX_AT_ONCE, strings=MAX_AT_ONCE, max_length=MAX_LENGTH))
    assert SCHEMA.field("step").type == pa.int32() and max(MAX_STEPS, MAX_AT_ONCE) < 2**31


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda p: p.name)
def test_the_protocols_are_in_range_for_every_task(protocol, registry):
    for task in registry.tasks:
        check_settings(task, *protocol.settings(task))


@pytest.mark.parametrize(("section", "settings"), [("train", Training), ("evaluate", Evaluation)])
def test_every_setting_can_be_changed_by_name(section, settings):
    resolved = PROTOCOLS["quick"].settings(toys.Walk())[section == "evaluate"]
    for field in fields(settings):
        changed = getattr(override(section, resolved, {f"{section}.{field.name}": "1"}), field.name)
        assert changed == type(getattr(resolved, field.name))(1)
