"""Limits: the ranges of settings, beyond which nothing is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf

from lgbench.contracts import Answers, Task
from lgbench.errors import UsageError
from lgbench.experiment.protocols import TARGETS, Evaluation, Training

MAX_STEPS = 10_000_000
"""Steps of a training at most: ten times those of the protocol `paper`. Every step's length is in memory."""
MAX_AT_ONCE = 2**20
"""Contexts and strings that can be asked for at most, of one batch and of one length."""
MAX_LENGTH = 2**20
"""Longest context that can be asked for: planning draws one, and a table of positions in a model has a row for each."""
MAX_PREFIX = 2**15
"""The same of tasks that answer at many positions, whose samplers go from token to token."""
MAX_SEEDS = 10_000
"""Seeds that one command runs at most."""
MAX_POINTS = MAX_STEPS.bit_length() - 1
"""Of measurements while a model trains: halving the steps more often leaves none."""
MIN_STRINGS = 4
"""Of one length: two members, and two others."""
_RANGES: Mapping[str, tuple[float, float]] = {
    "train.steps": (1, MAX_STEPS),
    "train.batch": (1, MAX_AT_ONCE),
    "train.lr": (0, inf),
    "train.weight_decay": (0, inf),
    "train.warmup": (0, 1),
    "train.average_every": (1, MAX_STEPS),
    "train.min_length": (1, MAX_LENGTH),
    "train.max_length": (1, MAX_LENGTH),
    "evaluate.contexts": (1, MAX_AT_ONCE),
    "evaluate.strings": (MIN_STRINGS, MAX_AT_ONCE),
    "evaluate.max_length": (1, MAX_LENGTH),
    "evaluate.points": (0, MAX_POINTS),
    "evaluate.point_contexts": (1, MAX_AT_ONCE),
    "evaluate.point_strings": (0, MAX_AT_ONCE),
    "evaluate.point_max_length": (1, MAX_LENGTH),
}


def check_settings(task: Task, train: Training, evaluate: Evaluation) -> None:
    """Raise UsageError naming the first setting out of its range."""
    values = {f"train.{f.name}": getattr(train, f.name) for f in fields(train)}
    values |= {f"evaluate.{f.name}": getattr(evaluate, f.name) for f in fields(evaluate)}
    most = MAX_LENGTH if task.signature.answers is Answers.LAST else MAX_PREFIX
    longest = most if task.max_length is None else min(most, task.max_length)
    shortest = 0 if task.signature.answers is Answers.EVERY_PREFIX else 1
    ranges = {
        **_RANGES,
        "train.min_length": (shortest, most),
        "train.max_length": (max(1, train.min_length), longest),
        # At least one of the task's own lengths is measured.
        "evaluate.max_length": (min(task.lengths or (1,)), longest),
        "evaluate.point_max_length": (min(task.lengths or (1,)), longest),
    }
    if train.targets not in TARGETS:
        raise UsageError(f"train.targets={train.targets!r} is not one of {' and '.join(TARGETS)}")
    for key, (low, high) in ranges.items():
        value = values[key]
        if not low <= value <= high:
            bound = f"at least {low}" if high == inf else f"from {low} to {high}"
            raise UsageError(f"{key}={value} is out of range for {task.name}: it must be {bound}")
    if 0 < evaluate.point_strings < MIN_STRINGS:
        wrong = f"evaluate.point_strings={evaluate.point_strings} is out of range for {task.name}"
        raise UsageError(f"{wrong}: it must be 0, for none, or from {MIN_STRINGS} to {MAX_AT_ONCE}")
