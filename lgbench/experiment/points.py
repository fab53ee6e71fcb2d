"""Points: the steps at which a model is tested while it trains, and the lengths that it is tested at."""

from __future__ import annotations

from collections.abc import Sequence

from lgbench.contracts import Answers, Task
from lgbench.experiment.lengths import board_lengths
from lgbench.experiment.protocols import MULTIPLES, Evaluation, Training


def point_steps(training: Training, evaluation: Evaluation) -> list[int]:
    """The steps of a training after which a model is tested, the last one left out: half of all, a quarter, and so on.

    >>> from lgbench.experiment.protocols import PROTOCOLS
    >>> from types import SimpleNamespace
    >>> point_steps(SimpleNamespace(steps=1000), SimpleNamespace(points=10))
    [1, 3, 7, 15, 31, 62, 125, 250, 500]
    """
    halved = (training.steps // 2**k for k in range(1, evaluation.points + 1))
    return sorted({step for step in halved if step})


def point_lengths(task: Task, training: Training, evaluation: Evaluation) -> list[int]:
    """The lengths that are measured while a model trains. All of them are measured at its end too.

    Those of boards from the training length on; where every prefix is answered, also multiples of the training length.
    """
    longest = min(evaluation.point_max_length, evaluation.max_length)
    shown = [length for length in board_lengths(task, training, evaluation) if length <= longest]
    from_length = _trained(shown, training)
    found = {length for length in shown if length >= from_length}
    if task.signature.answers is Answers.EVERY_PREFIX:
        found |= {n for n in (m * training.max_length for m in MULTIPLES) if n <= longest}
    return sorted(found)


def drawn_point_lengths(task: Task, training: Training, evaluation: Evaluation) -> list[int]:
    """Lengths of the contexts that are drawn for them: the longest alone where every prefix is answered."""
    lengths = point_lengths(task, training, evaluation)
    return lengths[-1:] if task.signature.answers is Answers.EVERY_PREFIX else lengths


def _trained(lengths: Sequence[int], training: Training) -> int:
    """The longest of these lengths that models are trained on; where there is none, the shortest."""
    trained = [length for length in lengths if length <= training.max_length]
    return max(trained) if trained else min(lengths, default=0)
