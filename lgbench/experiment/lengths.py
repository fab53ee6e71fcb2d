"""Lengths: which ones boards show, which ones contexts answer, and how long an input gets."""

from __future__ import annotations

from torch import Tensor

from lgbench import seeds
from lgbench.contracts import Answers, Language, Task
from lgbench.experiment.contexts import draw
from lgbench.experiment.protocols import Evaluation, Training
from lgbench.randomness import Random

CONTEXTS = 32
"""Contexts of a length in which an answer that counts is looked for."""


def spaced_lengths(low: int, trained: int, longest: int) -> list[int]:
    """Powers of two from `low` to `longest`, with the training length and the longest.

    >>> spaced_lengths(5, 16, 63)
    [8, 16, 32, 63]
    """
    powers = {2**k for k in range(longest.bit_length()) if low <= 2**k <= longest}
    return sorted(powers | {n for n in (trained, longest) if n <= longest})


def board_lengths(task: Task, training: Training, evaluation: Evaluation) -> list[int]:
    """The lengths that boards show and average over: the task's own, else powers of two, so that each doubling counts once."""
    if task.lengths is None:
        return spaced_lengths(max(1, training.min_length), training.max_length, evaluation.max_length)
    return sorted({length for length in task.lengths if length <= evaluation.max_length})


def context_lengths(task: Task, training: Training, evaluation: Evaluation) -> list[int]:
    """Lengths of the contexts that are drawn: the longest alone where every prefix is answered."""
    lengths = board_lengths(task, training, evaluation)
    return lengths[-1:] if task.signature.answers is Answers.EVERY_PREFIX else lengths


def answered_lengths(task: Task, length: int, answers: int) -> list[int]:
    """The lengths that the A answers to contexts of `length` are about: for each answer one, or one for all."""
    if task.signature.answers is not Answers.EVERY_PREFIX:
        return [length]
    return list(range(length - answers + 1, length + 1))


def no_answer_counts(task: Task, training: Training, evaluation: Evaluation) -> str | None:
    """A sentence if no answer counts at a length that boards show; None if one does."""
    shown = board_lengths(task, training, evaluation)
    for length in context_lengths(task, training, evaluation):
        key = seeds.key(0, "counted", task.name, length)
        for n in (1, CONTEXTS):  # one is enough, but for a task that draws which answers count
            weights = draw(task, length, Random.stacked([key], n)).weights
            if weights is None or not _counted(task, length, weights).isdisjoint(shown):
                return None
    said = ", ".join([*map(str, shown[:3]), *(["..."] if len(shown) > 3 else [])]) or "none"
    return f"no answer of {task.name} counts at a length that boards show ({said}): give Task.lengths at which some count"


def _counted(task: Task, length: int, weights: Tensor) -> set[int]:
    """The lengths at which an answer to some of n contexts of `length` counts. weights (n, A)."""
    answered = answered_lengths(task, length, weights.shape[1])
    each = answered if len(answered) > 1 else answered * weights.shape[1]
    return {answer for answer, counts in zip(each, (weights > 0).any(0).tolist(), strict=True) if counts}


def context_positions(task: Task, length: int) -> int:
    """T, the positions of the longest input of a task that is asked for contexts up to `length`. Draws one context."""
    return draw(task, length, Random.stacked([seeds.key(0, "positions", task.name)], 1)).inputs.shape[1]


def string_positions(task: Task, length: int) -> int:
    """The same of strings, which a language may have at a length a little above, with a begin token before them; else 0."""
    return task.testable_length(length) + 1 if isinstance(task, Language) else 0
