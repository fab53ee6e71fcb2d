"""Scores of a model, the validity of its answers, and the measurements that are defined for a task.

Boards rank no entry with invalid answers: not finite, or dependent on later inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor

from lgbench.contracts import NOT_FINITE, SOUNDNESS, Measurement, Source, Task
from lgbench.errors import PluginError
from lgbench.terminal import sentence


class Score(NamedTuple):
    """Number of a model: `value` over `n` answers, strings or contexts; None where undefined."""

    weights: str
    metric: str
    length: int
    value: float | None
    n: int
    layer: int | None = None
    """Layer of a probe; None for the whole model."""
    head: int | None = None
    """Head of a probe; None for the whole layer."""


VERSION = 1
"""Version of the rows about validity. Raise it whenever a verdict could change."""


def reasons(scores: Iterable[Score], diverged: bool) -> list[str]:
    """Sentences with the reasons for an unranked run.

    A diverged training is not flagged a second time for infinite or NaN answers.
    """
    found: dict[str, list[str]] = {}
    for score in scores:
        if score.metric in SOUNDNESS and score.value and not (diverged and score.metric == NOT_FINITE):
            found.setdefault(score.metric, []).append(score.weights)
    return [f"{SOUNDNESS[metric]} (weights: {', '.join(dict.fromkeys(own))})" for metric, own in found.items()]


def of_source(source: Source, task: Task, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Measurements on a task that are computed from this source."""
    return [measurement for measurement in measurements if measurement.source(task) == source]


@contextmanager
def unwritten(measurement: Measurement, given: object) -> Iterator[None]:
    """Raise PluginError if the measurement writes into a tensor of `given`: the next measurement reads the same tensor.

    PyTorch counts the writes to a tensor; nothing is copied or compared.
    """
    before = [(tensor, tensor._version) for tensor in _tensors(given)]
    yield
    if any(tensor._version != version for tensor, version in before):
        raise PluginError(
            sentence(f"the measurement {measurement.name} writes into tensors that other measurements read: ")
            + "use operations that make new tensors, such as x.abs() in place of x.abs_(), or x.clone() first"
        )


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "__dict__"):
        yield from _tensors(vars(value))
