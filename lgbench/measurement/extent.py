"""Extent of a test: contexts, strings and lengths, after and during training."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor

from lgbench.contracts import Language, Measurement, Task
from lgbench.errors import PluginError
from lgbench.experiment.contexts import board_lengths, context_lengths, drawn_point_lengths, point_lengths
from lgbench.experiment.protocols import Evaluation, Training
from lgbench.terminal import sentence


class Extent(NamedTuple):
    """Amount of one test."""

    contexts: int
    strings: int
    drawn: Sequence[int]
    """Lengths of the contexts."""
    kept: Container[int] | None
    """Lengths with kept scores, None for all. One context has scores of many lengths where every prefix has an answer."""
    of_strings: Sequence[int]
    """Lengths of the strings."""

    @classmethod
    def of_end(cls, task: Task, training: Training, evaluation: Evaluation) -> Extent:
        """Extent after training: everything."""
        strings = _string_lengths(task, board_lengths(task, training, evaluation))
        return cls(evaluation.contexts, evaluation.strings, context_lengths(task, training, evaluation), None, strings)

    @classmethod
    def of_point(cls, task: Task, training: Training, evaluation: Evaluation) -> Extent:
        """Extent during training: fewer contexts, and a subset of the final lengths."""
        kept = point_lengths(task, training, evaluation)
        shown = set(board_lengths(task, training, evaluation))
        strings = _string_lengths(task, [length for length in kept if length in shown]) if evaluation.point_strings else []
        drawn = drawn_point_lengths(task, training, evaluation)
        return cls(evaluation.point_contexts, evaluation.point_strings, drawn, kept, strings)

    def keeps(self, length: int) -> bool:
        return self.kept is None or length in self.kept


def by_source(task: Task, measurements: Sequence[Measurement]) -> tuple[list[Measurement], list[Measurement]]:
    """Measurements defined for a task: of contexts, and of whole strings."""
    sources = [(measurement, measurement.source(task)) for measurement in measurements]
    return [m for m, source in sources if source == "contexts"], [m for m, source in sources if source == "strings"]


def probes_of(task: Task, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Measurements of internals on a task: probes."""
    return [measurement for measurement in measurements if measurement.source(task) == "insides"]


def _string_lengths(task: Task, lengths: Iterable[int]) -> list[int]:
    """Lengths of the strings of a language; empty for other tasks."""
    return sorted({task.testable_length(length) for length in lengths}) if isinstance(task, Language) else []


@contextmanager
def unwritten(measurement: Measurement, given: object) -> Iterator[None]:
    """Raise PluginError if the measurement writes into a tensor of `given`: the next measurement reads the same tensor.

    PyTorch counts the writes to a tensor; nothing is copied or compared.
    """
    before = [(tensor, tensor._version) for tensor in _tensors(given)]
    yield
    if any(tensor._version != version for tensor, version in before):
        module = type(measurement).__module__
        raise PluginError(
            sentence(f"the measurement {measurement.name} of {module} writes into tensors that other measurements read: ")
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
