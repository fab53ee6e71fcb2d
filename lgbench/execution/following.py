"""Trainings in progress, as trackers hear of them: numbers by name, of each model of a population."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lgbench.contracts import CURVE_METRICS
from lgbench.measurement.score import Score

Values = dict[str, float]


@dataclass(frozen=True)
class Reached:
    """A population has reached a step. What is not finite, as in a training that has diverged, is left out."""

    kind: Literal["curve", "measured"]
    step: int
    values: list[Values]
    """Of each model."""


Follow = Callable[[Reached], None]


class Following:
    """A :class:`lgbench.training.train.Follower` that gives names to what it hears, and passes it on."""

    def __init__(self, follow: Follow) -> None:
        self._follow = follow

    def curve(self, step: int, loss: Sequence[float], gradient_norm: Sequence[float]) -> None:
        models = zip(loss, gradient_norm, strict=True)
        self._follow(Reached("curve", step, [finite(zip(CURVE_METRICS, values, strict=True)) for values in models]))

    def measured(self, step: int, found: Any) -> None:
        models = [finite((name_of(s.metric, s.weights, s.length), s.value) for s in map(Score._make, own)) for own in found]
        self._follow(Reached("measured", step, models))


def name_of(metric: str, weights: str, length: int) -> str:
    """The name of a number in a tracker: where trackers make groups, those of a metric are together."""
    return f"{metric}/{weights}/{length}"


def finite(values: Iterable[tuple[str, float | None]]) -> Values:
    """Those that trackers are told: neither missing nor infinite nor not a number."""
    return {name: value for name, value in values if value is not None and math.isfinite(value)}
