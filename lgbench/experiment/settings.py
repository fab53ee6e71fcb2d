"""Settings that `--set` changes: sections, options of plugins, ranges."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from itertools import product
from math import inf
from typing import Any, TypeVar

from lgbench.contracts import PART_KINDS, JsonFile, Task
from lgbench.errors import UsageError, unknown
from lgbench.experiment import json_files
from lgbench.experiment.protocols import Evaluation, Training

OPTION_SECTIONS = ("model", *PART_KINDS, "optimizer")
"""Sections whose settings are options of what plugins provide: the architecture, its parts, the optimizer."""
SECTIONS = ("train", "evaluate", *OPTION_SECTIONS)

MAX_OPTION = 2**14
"""How far from 0 an option that is a whole number may be whose range its plugin does not state.

Planning builds every model once. Without a bound, a typing error would fill the machine's memory before it is refused.
"""

Ranges = Mapping[str, tuple[float, float]]
"""By option, the least and the greatest value."""

Options = dict[str, Any]
"""By full name, such as model.layers."""

Settings = TypeVar("Settings", Training, Evaluation)


def grid(changes: Mapping[str, str]) -> list[dict[str, str]]:
    """Every combination of the values of each setting, which commas separate. Raises UsageError for an unknown section.

    The commas of a JSON object separate nothing.
    """
    for key in changes:
        section, _, name = key.partition(".")
        if section not in SECTIONS or not name:
            known = ", ".join(f"{section}." for section in SECTIONS)
            raise UsageError(f"no setting {key!r}; settings begin with one of {known} as in train.steps=500")
    whole = json_files.is_object
    values = [[text] if whole(text) else [value.strip() for value in text.split(",")] for text in changes.values()]
    return [dict(zip(changes, chosen, strict=True)) for chosen in product(*values)]


def options_of(function: Callable[..., Any], owner: str) -> Options:
    """The options of a function: its keyword-only parameters, with their defaults.

    Raises UsageError for a default from whose type a text cannot be read.
    """
    parameters = inspect.signature(function).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for name, default in options.items():
        if not isinstance(default, bool | int | float | str):
            has = "no default" if default is inspect.Parameter.empty else f"the default {default!r}"
            raise UsageError(f"the option {name} of {owner} has {has}, expected an int, float, bool or str")
    return options


def chosen_options(
    section: str, owner: str, defaults: Options, ranges: Ranges, task: Task, changes: Mapping[str, str]
) -> Options:
    """The options of one section: the defaults, then the task's model sizes, then what the user set.

    Raises UsageError for an option that the owner does not have, and for a value out of its range.
    """
    own = task.model if section == "model" else {}
    # As a user's values are: 2 for an option whose default is 1.0 is 2.0, for a run's id is taken from what is written.
    own = {name: float(v) if isinstance(defaults[name], float) else v for name, v in own.items() if name in defaults}
    options = defaults | own
    for key, text in changes.items():
        found, _, name = key.partition(".")
        if found == section:
            if name not in options:
                raise unknown(f"option of {owner}", key, (f"{section}.{known}" for known in options))
            options[name] = parse_value(key, text, defaults[name])
            _require_in_range(owner, key, options[name], ranges.get(name))
    return options


def flat(train: Training, evaluate: Evaluation, options: Options) -> Options:
    """Every setting under the name by which `--set` reaches it."""
    sections = {"train": asdict(train), "evaluate": asdict(evaluate)}
    named = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    return named | options


def _require_in_range(owner: str, key: str, value: Any, stated: tuple[float, float] | None) -> None:
    """Raise UsageError, with what would work, for a number out of the range that its plugin states, or that all have."""
    if isinstance(value, bool | str):
        return
    said = f"{key}={value} is out of range for {owner}: it must be "
    if stated:
        low, high = stated
        if not low <= value <= high:
            raise UsageError(said + (f"at least {low}" if high == inf else f"from {low} to {high}"))
    elif isinstance(value, int) and abs(value) > MAX_OPTION:
        raise UsageError(said + (f"at most {MAX_OPTION}" if value > 0 else f"at least {-MAX_OPTION}"))


def parse_value(key: str, text: str, like: Any) -> Any:
    """`text` as a value of the type of `like`; UsageError naming `key` otherwise.

    >>> parse_value("train.steps", "1e3", 10), parse_value("model.mlp", "off", True)
    (1000, False)
    """
    if isinstance(like, bool):
        words = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
        if text.lower() in words:
            return words[text.lower()]
        raise UsageError(f"{key}={text!r} is not a switch: use on or off")
    if isinstance(like, JsonFile):
        return json_files.content(key, text)
    if isinstance(like, str):
        return text
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if isinstance(like, float) and number == number and abs(number) != float("inf"):
        return number
    if isinstance(like, int) and number.is_integer():
        return int(number)
    raise UsageError(f"{key}={text!r} is not {'a whole number' if isinstance(like, int) else 'a finite number'}")


def override(section: str, settings: Settings, changes: Mapping[str, str]) -> Settings:
    """`settings` with the entries of `changes` that belong to `section` ("train" or "evaluate") put in."""
    prefix = f"{section}."
    known = {f.name: getattr(settings, f.name) for f in fields(settings)}
    chosen: dict[str, Any] = {}
    for key, text in changes.items():
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            if name not in known:
                raise unknown("setting", key, (prefix + n for n in known))
            chosen[name] = parse_value(key, text, known[name])
    return replace(settings, **chosen)
