"""The contexts of a task that checks look at."""

from __future__ import annotations

from lgbench.contracts import Batch, Task
from lgbench.randomness import Random

CONTEXTS = 32
"""Drawn at each length that is tried."""


def drawn(task: Task, n: int, length: int, seed: int = 0) -> Batch:
    return task.sample(length, Random(n, seed))


def lengths(task: Task, longest: int | None = None) -> list[int]:
    """The shortest, the longest in training, its own, and one far beyond, as far as there are contexts."""
    low, high = task.train_lengths
    bound = min(x for x in (longest, task.max_length, 4 * high + 1) if x is not None)
    own = [length for length in task.lengths or () if 1 <= length <= bound]
    return sorted({min(x, bound) for x in (max(low, 1), max(low, 1) + 1, high, bound, *own)})
