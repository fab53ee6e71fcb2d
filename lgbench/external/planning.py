"""The plan for a model that lgbench did not train: its measurements and its record."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lgbench.contracts import NAME, RESERVED_NAMES, Task
from lgbench.errors import UsageError, unknown
from lgbench.experiment.experiment import Tested
from lgbench.experiment.lengths import board_lengths, no_answer_counts
from lgbench.experiment.limits import check_settings
from lgbench.experiment.names import find_tasks
from lgbench.experiment.origins import plugins_used, versions_of
from lgbench.experiment.probes import takes_part
from lgbench.experiment.protocols import BOARDS_PROTOCOL, EXTERNAL, EXTERNAL_VERSION, PROTOCOLS, Evaluation, Training
from lgbench.experiment.record import ExperimentRecord, ProtocolUse
from lgbench.experiment.settings import flat, override
from lgbench.extensions.catalog import Found
from lgbench.extensions.registry import Registry

SETTABLE = ("evaluate.contexts", "evaluate.max_length", "evaluate.strings", "train.max_length", "train.min_length")
"""The settings that mean something without a training. Those of `train` say which lengths count as in distribution."""
LENGTHS = "evaluate.lengths"
"""The change of a protocol that names the lengths, with blanks between them."""
MAX_LENGTHS = 100
"""How many lengths can be asked for. A footer has room for their names."""
NOT_TRAINED = "none"
"""In place of the optimizer's name."""


@dataclass(frozen=True)
class Order:
    """A request to evaluate a model."""

    name: str
    task: str
    lengths: Sequence[int] | None
    seed: int
    changes: Mapping[str, str]


@dataclass(frozen=True)
class External(Tested):
    """A model that lgbench did not train, on a task."""

    took_part: frozenset[str]
    """The names of the distributions and plugin files that decide or measure its numbers."""


def planned(order: Order, registry: Registry) -> External:
    """The model on its task. Raises UsageError for a name, a task, a length or a setting that cannot be."""
    _require_name(order.name)
    found = _task(order.task, registry)
    plain_train, plain_test = PROTOCOLS[BOARDS_PROTOCOL].settings(found.thing)
    for key in order.changes:
        if key not in SETTABLE:
            raise unknown("setting of a model that lgbench does not train", key, SETTABLE)
    train, test = override("train", plain_train, order.changes), override("evaluate", plain_test, order.changes)
    before, after = flat(plain_train, plain_test, {}), flat(train, test, {})
    task, changes = found.thing, {key: str(after[key]) for key in SETTABLE if after[key] != before[key]}
    if order.lengths is not None:
        lengths = _lengths(order.lengths)
        if "evaluate.max_length" in order.changes:
            raise UsageError("evaluate.max_length and lengths both say how long inputs get: leave one of them out")
        if lengths != board_lengths(task, train, test):
            task, test = _at(task, lengths), replace(test, max_length=lengths[-1])
            changes[LENGTHS] = " ".join(map(str, lengths))
    _require_seed(order.seed)
    test = replace(test, points=0, point_max_length=test.max_length)  # there are none while it trains
    check_settings(task, train, test)
    if reason := no_answer_counts(task, train, test):
        raise UsageError(reason)
    chosen = [registry.measurements.found(name) for name in registry.measurements.names()]
    chosen = [each for each in chosen if takes_part(each.thing, task, frozenset())]
    record = _record(order, found, train, test, changes, registry)
    return External(record, task, tuple(each.thing for each in chosen), frozenset({**versions_of(found, *chosen)}))


def _record(
    order: Order, task: Found[Task], train: Training, test: Evaluation, changes: Mapping[str, str], registry: Registry
) -> ExperimentRecord:
    """Nobody knows how the model was trained: all numbers of that are 0, but for the lengths that count as in distribution."""
    untrained = Training(0, 0, 0.0, 0.0, 0.0, 0, train.min_length, train.max_length)
    return ExperimentRecord(
        task=task.label,
        family=task.label.replace(task.thing.name, task.thing.family, 1),
        task_version=task.thing.version,
        entry=order.name,
        architecture=order.name,
        norm=None,
        attention=None,
        position=None,
        optimizer=NOT_TRAINED,
        options=(),
        averagers=(),
        protocol=ProtocolUse(EXTERNAL, EXTERNAL_VERSION, tuple(sorted(changes.items()))),
        train=untrained,
        evaluate=test,
        plugins=plugins_used([("task", task)], registry.loaded()),
        seed=order.seed,
    )


def _require_name(name: str) -> None:
    if not NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise UsageError(f"a model cannot have the name {name!r}: use lower-case letters, digits and hyphens, as in my-model")


def _require_seed(seed: int) -> None:
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise UsageError(f"the seed is {seed!r}, expected a whole number from 0 on")


def _task(name: str, registry: Registry) -> Found[Task]:
    found = find_tasks([name], registry)
    if len(found) > 1:
        raise UsageError(f"{name} is {len(found)} tasks, and a model is for one: name one of them, such as {found[0].label}")
    return found[0]


def _lengths(asked: Sequence[int]) -> list[int]:
    lengths = sorted({*asked})
    if not 1 <= len(lengths) <= MAX_LENGTHS or not all(isinstance(n, int) and n >= 1 for n in lengths):
        raise UsageError(f"lengths is {asked!r}, expected 1 to {MAX_LENGTHS} whole numbers from 1 on, such as [40, 80, 160]")
    return lengths


def _at(task: Task, lengths: Sequence[int]) -> Task:
    """The same task, of which boards show these lengths."""
    other = copy.copy(task)
    vars(other)["lengths"] = tuple(lengths)  # a plugin's task may be frozen
    return other
