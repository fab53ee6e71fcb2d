"""Lengths: which ones boards show, and how long an input gets."""

from __future__ import annotations

from lgbench import seeds
from lgbench.contracts import Language, Task
from lgbench.experiment.protocols import Evaluation, Training


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


def longest_input(task: Task, length: int) -> int:
    """T, the positions of the longest input of a task that is asked for contexts up to `length`. Draws one context."""
    inputs = task.sample(1, length, seeds.generator(0, "positions", task.name)).inputs
    # A language may have its strings at a length a little above, with a begin token before them.
    return max(inputs.shape[1], task.testable_length(length) + 1 if isinstance(task, Language) else 0)
