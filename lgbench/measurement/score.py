"""One number of a model."""

from __future__ import annotations

from typing import NamedTuple


class Score(NamedTuple):
    """One number: `value` is over `n` answers, strings or contexts, None where it is not defined."""

    weights: str
    metric: str
    length: int
    value: float | None
    n: int
    layer: int | None = None
    """Of a probe; None for a number of the whole model."""
    head: int | None = None
    """Of a probe; None for a number of the whole layer."""
