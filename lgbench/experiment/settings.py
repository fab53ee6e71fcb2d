"""Settings for `--set`: sections, options of plugins, ranges, and options with a JSON object as their value."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from lgbench.contracts import PART_KINDS, Answers, JsonFile, Task
from lgbench.errors import UsageError, first_line, unknown
from lgbench.experiment.record import TARGETS, Evaluation, Training, flat

OPTION_SECTIONS = ("model", *PART_KINDS, "optimizer")
"""Sections with options of plugins: the architecture, its parts, the optimizer."""
SECTIONS = ("train", "evaluate", *OPTION_SECTIONS)

MAX_OPTION = 2**14
"""Largest absolute value of an integer option without a range from its plugin.

Planning builds every model once. Without a bound, a typing error could fill the machine's memory.
"""

Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value by option."""

Options = dict[str, Any]
"""Values by full name, such as model.layers."""

Settings = TypeVar("Settings", Training, Evaluation)


def grid(changes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Combinations of the values of all settings. Raises UsageError for an unknown section.

    A text has several values joined by commas, or is one JSON object.

    >>> grid({"train.lr": ["1e-3, 3e-3"], "model.config": ['{"n":2, "d":8}']})
    [{'train.lr': '1e-3', 'model.config': '{"n":2, "d":8}'}, {'train.lr': '3e-3', 'model.config': '{"n":2, "d":8}'}]
    """
    for key in changes:
        section, _, name = key.partition(".")
        if section not in SECTIONS or not name:
            known = ", ".join(f"{section}." for section in SECTIONS)
            raise UsageError(f"no setting {key!r}; settings begin with one of {known} as in train.steps=500")
    values = [
        [value.strip() for text in texts for value in ([text] if is_json_object(text) else text.split(","))]
        for texts in changes.values()
    ]
    return [dict(zip(changes, chosen, strict=True)) for chosen in product(*values)]


def options_of(function: Callable[..., Any], owner: str) -> Options:
    """Options of a function: its keyword-only parameters, with their defaults.

    Raises UsageError for a default of any type except int, finite float, bool and str.
    """
    parameters = inspect.signature(function).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for name, default in options.items():
        # No subclass, such as an enum of a plugin file, because a population's plan is stored as JSON.
        if type(default) not in (bool, int, float, str, JsonFile) or default in (inf, -inf) or default != default:
            has = "no default" if default is inspect.Parameter.empty else f"the default {default!r}"
            raise UsageError(f"the option {name} of {owner} has {has}, expected an int, finite float, bool or str")
    return options


def chosen_options(
    section: str, owner: str, defaults: Options, ranges: Ranges, task: Task, changes: Mapping[str, str]
) -> Options:
    """Options of one section: the defaults, then the task's model sizes, then the user's changes.

    Raises UsageError for an unknown option and for a value out of range.
    """
    own = task.model if section == "model" else {}
    # As a user's text, since the run id hashes the written value: 2 for an option with the default 1.0 becomes 2.0.
    own = {name: parse_value(f"model.{name}", str(v), defaults[name]) for name, v in own.items() if name in defaults}
    options = defaults | own
    for key, text in changes.items():
        found, _, name = key.partition(".")
        if found == section:
            if name not in options:
                raise unknown(f"option of {owner}", key, (f"{section}.{known}" for known in options))
            value = options[name] = parse_value(key, text, defaults[name])
            if isinstance(value, int | float) and not isinstance(value, bool):
                bound = MAX_OPTION if isinstance(value, int) else inf
                _require_between(key, value, owner, *ranges.get(name, (-bound, bound)))
    return options


def all_settings(train: Training, evaluate: Evaluation, options: Options) -> Options:
    """All settings by their names in `--set`."""
    return flat({"train": asdict(train), "evaluate": asdict(evaluate)}) | options


def _require_between(key: str, value: float, owner: str, low: float, high: float) -> None:
    if not low <= value <= high:
        raise _out_of_range(key, value, owner, f"at least {low}" if high == inf else f"from {low} to {high}")


def _out_of_range(key: str, value: float, owner: str, allowed: str) -> UsageError:
    return UsageError(f"{key}={value} is out of range for {owner}: it must be {allowed}")


def parse_value(key: str, text: str, like: Any) -> Any:
    """Value of `text` with the type of `like`. Raises UsageError with the name `key`.

    >>> parse_value("train.steps", "1e3", 10), parse_value("model.mlp", "off", True)
    (1000, False)
    """
    if isinstance(like, bool):  # first, because a bool is an int
        words = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
        if text.lower() in words:
            return words[text.lower()]
        raise UsageError(f"{key}={text!r} is not a switch: use on or off")
    if isinstance(like, JsonFile):
        return json_content(key, text)
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
    """Copy of `settings` with the changes of `section`, "train" or "evaluate"."""
    known = {f"{section}.{name}": name for name in asdict(settings)}
    chosen: dict[str, Any] = {}
    for key, text in changes.items():
        if key.startswith(f"{section}."):
            if key not in known:
                raise unknown("setting", key, known)
            chosen[known[key]] = parse_value(key, text, getattr(settings, known[key]))
    return replace(settings, **chosen)


MAX_STEPS = 10_000_000
"""Largest number of training steps, ten times as many as in the protocol `paper`. Memory holds the length of each step."""
MAX_AT_ONCE = 2**20
"""Largest number of contexts or strings per batch and per tested length."""
MAX_LENGTH = 2**20
"""Longest possible context: planning draws one, and a position table in a model has a row per position."""
MAX_PREFIX = 2**15
"""Longest possible context of tasks with answers at many positions, whose samplers loop over tokens."""
MAX_SEEDS = 10_000
"""Largest number of seeds per command."""
MAX_EVAL_STEPS = MAX_STEPS.bit_length() - 1
"""Largest number of eval steps: more halvings of MAX_STEPS leave no step."""
MAX_DROPOUT = 0.99
"""Largest rate of dropout: at 1 nothing of a sublayer is left."""
MIN_STRINGS = 4
"""Smallest number of strings per length: two members and two non-members."""
_RANGES: Mapping[str, tuple[float, float]] = {
    "train.steps": (1, MAX_STEPS),
    "train.batch": (1, MAX_AT_ONCE),
    "train.lr": (0, inf),
    "train.weight_decay": (0, inf),
    "train.warmup": (0, 1),
    "train.average_every": (1, MAX_STEPS),
    "train.dropout": (0, MAX_DROPOUT),
    "evaluate.contexts": (1, MAX_AT_ONCE),
    "evaluate.strings": (MIN_STRINGS, MAX_AT_ONCE),
    "evaluate.points": (0, MAX_EVAL_STEPS),
    "evaluate.point_contexts": (1, MAX_AT_ONCE),
    "evaluate.point_strings": (0, MAX_AT_ONCE),
}


def longest_context(task: Task) -> int:
    """Length of the longest context that can be tested."""
    most = MAX_LENGTH if task.signature.answers is Answers.LAST else MAX_PREFIX
    return most if task.max_length is None else min(most, task.max_length)


def check_settings(task: Task, train: Training, evaluate: Evaluation) -> None:
    """Raise UsageError with the first setting out of range."""
    values = all_settings(train, evaluate, {})
    longest = longest_context(task)
    shortest = 0 if task.signature.answers is Answers.EVERY_PREFIX else 1
    ranges = {
        **_RANGES,
        "train.min_length": (shortest, longest),
        "train.max_length": (max(1, train.min_length), longest),
        # At least one of the task's own lengths must be tested.
        "evaluate.max_length": (min(task.lengths or (1,)), longest),
        "evaluate.point_max_length": (min(task.lengths or (1,)), longest),
    }
    if train.targets not in TARGETS:
        raise UsageError(f"train.targets={train.targets!r} is not one of {' and '.join(TARGETS)}")
    for key, (low, high) in ranges.items():
        _require_between(key, values[key], task.name, low, high)
    if 0 < (few := evaluate.point_strings) < MIN_STRINGS:
        allowed = f"0, for none, or from {MIN_STRINGS} to {MAX_AT_ONCE}"
        raise _out_of_range("evaluate.point_strings", few, task.name, allowed)


MAX_LETTERS = 1000
"""Length limit for a JSON object without spaces, since each run's metadata contains the object."""


def json_content(key: str, text: str) -> str:
    """JSON object from `text`, a file name or the object itself, with sorted keys and without spaces.

    Raises UsageError with the option `key`.
    """
    import msgspec  # not at the top: `lgbench --help` needs none of it

    said, where = (text, key) if is_json_object(text) else (_read_json_file(key, text), f"{key}={text!r}")
    try:
        found = msgspec.json.decode(said, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} is no JSON object: {first_line(error)}") from None
    compact = json.dumps(found, sort_keys=True, separators=(",", ":"))  # one text for one object, because run ids hash it
    if len(compact) > MAX_LETTERS:
        raise UsageError(
            f"{where} has {len(compact)} letters without spaces, and at most {MAX_LETTERS} fit into the metadata of a run: "
            "leave out what is as by default"
        )
    return compact


def is_json_object(text: str) -> bool:
    """Whether the value of an option is a JSON object rather than a file name."""
    return text.startswith("{")


def setting_label(value: object) -> str:
    """Value of a changed setting in titles of boards; for a JSON object, its shortened SHA-256."""
    text = str(value)
    return (
        f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}" if isinstance(value, str) and is_json_object(text) else text
    )


def _read_json_file(key: str, text: str) -> bytes:
    try:
        return Path(text).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{key}={text!r} cannot be read: {error.strerror}; name a file with a JSON object") from None
