"""From what a user asks for to a list of experiments: frozen, fully resolved, named by the hash of their content."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from itertools import product
from typing import Any

from torch import nn

from lgbench.contracts import PART_KINDS, Architecture, Parts, Task
from lgbench.errors import Unsupported, UsageError, first_line, unknown
from lgbench.evaluate import longest_input
from lgbench.protocols import Evaluation, Training, check_settings, override, parse_value, protocol_named
from lgbench.registry import Registry
from lgbench.seeds import initial
from lgbench.selection import find_entries, find_tasks

LARGEST_OPTION = 2**14
"""How far from 0 a whole number may be that is set for a model's option. As a width it fills the largest GPU with two layers.

Planning builds every model once, and without a bound a slip of the hand fills the machine's memory before it is refused.
"""


@dataclass(frozen=True)
class Experiment:
    """One model on one task with one seed, and everything that decides its numbers."""

    task: str
    family: str
    task_version: int
    architecture: str
    norm: str | None
    """None where the architecture takes none."""
    model: tuple[tuple[str, Any], ...]
    averagers: tuple[str, ...]
    protocol: str
    """Name and version, such as "standard/1", followed by whatever was set otherwise."""
    train: Training
    evaluate: Evaluation
    seed: int
    # What came after the first published runs has a default, which is left out of the run id, so that they keep theirs.
    attention: str | None = None
    """None for the architecture's own."""
    position: str | None = None
    """None for the architecture's own."""

    @property
    def entry(self) -> str:
        return "+".join(filter(None, (self.architecture, self.norm, self.attention, self.position)))

    @cached_property
    def run_id(self) -> str:
        """16 hexadecimal digits that change with any field."""
        left_out = {f.name for f in fields(self) if f.default is not MISSING and getattr(self, f.name) == f.default}
        content = {name: value for name, value in asdict(self).items() if name not in left_out}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def parts(self, registry: Registry) -> dict[str, str]:
        """The name of the part of each kind that the architecture takes, its own included."""
        own = registry.architectures[self.architecture].defaults
        return {kind: getattr(self, kind) or own[kind] for kind in PART_KINDS if kind in own}

    def build(self, registry: Registry) -> nn.Module:
        """A model with fresh weights. Raises Unsupported where the architecture cannot serve the task or the parts."""
        architecture, task = registry.architectures[self.architecture], registry.tasks[self.task]
        catalogs, named = registry.catalogs(), self.parts(registry)
        chosen: dict[str, Any] = {kind: catalogs[kind][named[kind]] if kind in named else None for kind in PART_KINDS}
        parts = Parts(
            **chosen,
            train_positions=longest_input(task, self.train.max_length),
            test_positions=longest_input(task, max(self.train.max_length, self.evaluate.max_length)),
        )
        return architecture.build(task.signature, parts, **dict(self.model))


@dataclass(frozen=True)
class Request:
    """What a user asks for, as in the options of `lgbench run`; names are resolved by :func:`plan`."""

    tasks: Sequence[str]
    archs: Sequence[str]
    averagers: Sequence[str] | None = None
    """None for every installed averager."""
    seeds: Sequence[int] = (0, 1, 2)
    protocol: str = "standard"
    changes: Mapping[str, str] | None = None
    """By setting; several values with commas between make a grid."""


@dataclass(frozen=True)
class Plan:
    """The experiments of a request, and a sentence for each pair that cannot be."""

    experiments: tuple[Experiment, ...]
    refusals: tuple[str, ...]


def plan(request: Request, registry: Registry) -> Plan:
    """Resolve every name and setting before anything is trained.

    Raises UsageError for unknown names, values out of range, or when no pair of task and entry is possible.
    """
    for kind, named in (("task", request.tasks), ("arch", request.archs), ("seed", request.seeds)):
        if not named:
            raise UsageError(f"nothing to run: no {kind} was named")
    protocol = protocol_named(request.protocol)
    averagers = _averagers(request, registry)
    experiments: dict[Experiment, None] = {}
    refusals: dict[str, None] = {}
    pairs = product(find_tasks(request.tasks, registry), find_entries(request.archs, registry))
    for (label, entry), changes in product(pairs, _settings(request.changes or {})):
        task, architecture = registry.tasks[label], registry.architectures[entry.architecture]
        plain = protocol.settings(task)
        train, evaluate = override("train", plain[0], changes), override("evaluate", plain[1], changes)
        check_settings(task, train, evaluate)
        model = _model_options(task, architecture, changes)
        before = _flat(*plain, _model_options(task, architecture, {}))
        after = _flat(train, evaluate, model)
        changed = sorted(f"{key}={value}" for key, value in after.items() if value != before[key])
        seeds = [
            Experiment(
                task=label,
                family=label.replace(task.name, task.family, 1),
                task_version=task.version,
                **asdict(entry),
                model=tuple(sorted(model.items())),
                averagers=averagers,
                protocol=" ".join([f"{protocol.name}/{protocol.version}", *changed]),
                train=train,
                evaluate=evaluate,
                seed=seed,
            )
            for seed in dict.fromkeys(request.seeds)
        ]
        reason = _refusal(seeds[0], registry)
        if reason:
            refusals[f"{seeds[0].entry} cannot be run on {task.name}: {reason}"] = None
        else:
            experiments |= dict.fromkeys(seeds)
    if not experiments:
        raise UsageError("\n".join(refusals))
    return Plan(tuple(experiments), tuple(refusals))


def _averagers(request: Request, registry: Registry) -> tuple[str, ...]:
    """The labels of those to evaluate, in one order. Raises UsageError for names that nobody provides."""
    catalog = registry.averagers
    named = catalog.names() if request.averagers is None else request.averagers
    for name in named:
        catalog[name]  # which raises, as a label does not
    return tuple(sorted({catalog.label(name) for name in named}))


def _settings(changes: Mapping[str, str]) -> list[dict[str, str]]:
    """The grid over the values of each setting, which commas divide."""
    _check_sections(changes)
    values = [[value.strip() for value in text.split(",")] for text in changes.values()]
    return [dict(zip(changes, chosen, strict=True)) for chosen in product(*values)]


def _refusal(experiment: Experiment, registry: Registry) -> str | None:
    """Why the model cannot be built, None if it can."""
    try:
        with initial(experiment.seed, "weights"):
            experiment.build(registry)
    except Unsupported as error:
        return str(error)
    except Exception as error:  # an architecture's or a norm's code may raise anything
        return f"building the model failed with {type(error).__name__}: {first_line(error)}"
    return None


def model_options(architecture: Architecture) -> dict[str, Any]:
    """The options that `--set model.NAME=` reaches, with their defaults.

    Raises UsageError for one without a default from which a text's meaning can be told.
    """
    parameters = inspect.signature(architecture.build).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for name, default in options.items():
        if not isinstance(default, bool | int | float | str):
            has = "no default" if default is inspect.Parameter.empty else f"the default {default!r}"
            raise UsageError(f"the option {name} of {architecture.name} has {has}, expected an int, float, bool or str")
    return options


def _flat(train: Training, evaluate: Evaluation, model: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting under the name by which `--set` reaches it."""
    sections = {"train": asdict(train), "evaluate": asdict(evaluate), "model": model}
    return {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}


def _model_options(task: Task, architecture: Architecture, changes: Mapping[str, str]) -> dict[str, Any]:
    defaults = model_options(architecture)
    options = defaults | {name: value for name, value in task.model.items() if name in defaults}
    for key, text in changes.items():
        section, _, name = key.partition(".")
        if section == "model":
            if name not in options:
                raise unknown(f"option of {architecture.name}", key, (f"model.{known}" for known in options))
            options[name] = _in_range(architecture, key, parse_value(key, text, defaults[name]))
    return options


def _in_range(architecture: Architecture, key: str, value: Any) -> Any:
    if isinstance(value, int) and abs(value) > LARGEST_OPTION:
        bound = f"from {-LARGEST_OPTION} to {LARGEST_OPTION}"
        raise UsageError(f"{key}={value} is out of range for {architecture.name}: it must be {bound}")
    return value


def _check_sections(changes: Mapping[str, str]) -> None:
    for key in changes:
        section, _, name = key.partition(".")
        if section not in ("train", "evaluate", "model") or not name:
            raise UsageError(f"no setting {key!r}: settings begin with train., evaluate. or model., as in train.steps=500")
