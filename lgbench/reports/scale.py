"""The vertical scale of a metric: what it always shows, which values cannot be, where the landmark's name has room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lgbench.results.metrics import Metric


@dataclass(frozen=True)
class ValueScale:
    """A scale for the values of one metric."""

    metric: Metric

    @property
    def best(self) -> float | None:
        """The value of a perfect answer, None where the metric has no such value."""
        return self.metric.perfect

    @property
    def up(self) -> int:
        """1 where most values are above the landmark, -1 where they are below. 1 without a landmark."""
        if self.metric.landmark is None:
            return 1
        return self.metric.sign if self._landmark_is_best else -self.metric.sign

    def landmark_side(self, leaving: bool) -> Literal["left", "right"]:
        """Where the landmark's name is far from most curves.

        They leave the best value as lengths grow, and come near it as steps do.
        """
        return "right" if self._landmark_is_best == leaving else "left"

    @property
    def always_shown(self) -> list[float]:
        """Values that the axis shows whatever the data are, beside the landmark, so that tiny differences look tiny."""
        return [value for value in (self.metric.threshold, self.best) if value is not None and value != self.metric.landmark]

    @property
    def impossible(self) -> str:
        """An expression of Vega: whether no value can be at `datum.value`."""
        ends = {"<": self.metric.low, ">": self.metric.high}
        beyond = [f"datum.value {side} {end}" for side, end in ends.items() if end is not None]
        return " || ".join(beyond) or "false"

    @property
    def label(self) -> str:
        """An expression of Vega: the label at `datum.value`, about five characters wide at most."""
        size = "abs(datum.value)"
        return f"{size} >= 1e4 || 0 < {size} && {size} < 1e-3 ? format(datum.value, '~s') : datum.label"

    @property
    def _landmark_is_best(self) -> bool:
        return self.metric.landmark is not None and self.metric.landmark == self.best
