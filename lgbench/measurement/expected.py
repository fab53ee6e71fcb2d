"""The scores that a run must have, found without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from lgbench import seeds
from lgbench.contracts import LOOKS_AHEAD, NOT_FINITE, Answers, Batch, Measurement, Task
from lgbench.experiment.lengths import answered_lengths, board_lengths
from lgbench.experiment.protocols import Evaluation, Training
from lgbench.measurement import causality
from lgbench.measurement.extent import Extent, by_source
from lgbench.randomness import Random


class ExpectedScore(NamedTuple):
    """A metric at a length. A run has a score of it for each weight variant."""

    metric: str
    length: int
    n: int
    """Answers or strings that the score is over, at most."""
    exact: bool
    """Whether it is over exactly so many. If not, `n` may be smaller, and there is no value where it is 0."""
    on_boards: bool
    """Whether boards show this length."""


def expected_scores(
    task: Task, measurements: Sequence[Measurement], training: Training, evaluation: Evaluation
) -> list[ExpectedScore]:
    """The scores that :func:`lgbench.measurement.evaluate.evaluate` gives for each weight variant, found without a model.

    Draws one context of each length that :func:`lgbench.measurement.evaluate.evaluate` draws.
    """
    extent = Extent.of_end(task, training, evaluation)
    shown = set(board_lengths(task, training, evaluation))
    found, one = _expected(task, measurements, extent, shown)
    answers: Counter[int] = Counter()
    exact = all(each.weights is None for each in one.values())
    for drawn, each in one.items():
        answers[drawn] += extent.contexts * each.distribution.shape[1]
    if by_source(task, measurements)[1]:
        for length in extent.of_strings:
            answers[length] += extent.strings * (length + 1)
    found += [ExpectedScore(NOT_FINITE, length, n, exact, length in shown) for length, n in answers.items() if n]
    if one and (places := causality.places(task, one[max(one)].inputs)):
        found.append(ExpectedScore(LOOKS_AHEAD, max(one), places, True, max(one) in shown))
    return found


def expected_point_scores(
    task: Task, measurements: Sequence[Measurement], training: Training, evaluation: Evaluation
) -> list[ExpectedScore]:
    """The same of :func:`lgbench.measurement.evaluate.evaluate_point`."""
    shown = set(board_lengths(task, training, evaluation))
    return _expected(task, measurements, Extent.of_point(task, training, evaluation), shown)[0]


def _expected(
    task: Task, measurements: Sequence[Measurement], extent: Extent, shown: Container[int]
) -> tuple[list[ExpectedScore], dict[int, Batch]]:
    """The scores that measurements give, and by length the one context that was drawn to know them."""
    on_contexts, on_strings = by_source(task, measurements)
    found: list[ExpectedScore] = []
    one = {drawn: _probe(task, drawn) for drawn in extent.drawn}
    for drawn, each in one.items():
        answers = each.distribution.shape[1]
        n = extent.contexts * (answers if task.signature.answers is Answers.MARKED else 1)
        for length in answered_lengths(task, drawn, answers):
            exact = each.weights is None
            if extent.keeps(length):
                found += [ExpectedScore(m.name, length, n, not m.partial and exact, length in shown) for m in on_contexts]
    for length in extent.of_strings:
        found += [ExpectedScore(m.name, length, extent.strings, True, True) for m in on_strings]
    return found, one


def _probe(task: Task, length: int) -> Batch:
    """One context, to see what a task's contexts look like."""
    return task.sample(length, Random.stacked([seeds.key(0, "answers", task.name)], 1))
