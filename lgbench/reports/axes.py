"""Axes of figures: horizontal axes for lengths, steps and settings, and a vertical axis for a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from lgbench.results.metrics import Metric

STEP_LABEL = "datum.value < 1e4 ? format(datum.value, 'd') : format(datum.value, '.2~s')"
"""Vega expression for labels such as 976, 16k, 1M."""
SETTING_LABEL = (
    "0 < abs(datum.value) && abs(datum.value) < 1e-3 ? format(datum.value, '.3~e') : "
    "format(datum.value, abs(datum.value) < 1e4 ? '~g' : '.3~s')"
)
"""Vega expression for labels such as 3e-4, 0.001, 32, 12.5k."""


@dataclass(frozen=True)
class Across:
    """Horizontal axis of lengths, training steps, or values of a setting."""

    field: Literal["length", "step", "setting"]
    """Field of the data."""
    title: str
    scale: Literal["log", "linear"] = "log"
    format: str | None = None
    """Vega number format. Without a format, `label` decides how values are written."""
    label: str | None = None
    """Vega expression for the label at `datum.value`."""
    categories: tuple[str, ...] = ()
    """All values in order, at equal distances and without a scale, if some values are not numbers."""

    def encoded(self, marked: Any, title: str | None) -> alt.X:
        """Encoding of the field, with labels at `marked` where room allows."""
        said: dict[str, Any] = {"format": self.format} if self.format else {"labelExpr": self.label} if self.label else {}
        if self.categories:
            # Every property is set, because Vega-Lite's defaults rotate the labels of categories and align rotated labels.
            straight: dict[str, Any] = {"labelAngle": 0, "labelAlign": "center", "labelBaseline": "top", "labelLimit": 60}
            axis = alt.Axis(labelOverlap="parity", labelSeparation=2, **straight, **said)
            return alt.X(f"{self.field}:N", title=title, axis=axis, scale=self._points, sort=list(self.categories))
        axis = alt.Axis(values=marked, labelOverlap="parity", labelSeparation=2, tickRound=False, **said)
        kind: dict[str, Any] = {"type": "log", "base": 2} if self.scale == "log" else {"type": "linear", "zero": False}
        return alt.X(f"{self.field}:Q", title=title, axis=axis, scale=alt.Scale(**kind, nice=False, padding=6))

    @property
    def plain(self) -> str | alt.X:
        """Encoding of the field for layers without an axis definition."""
        if self.categories:
            return alt.X(f"{self.field}:N", scale=self._points, sort=list(self.categories))
        return f"{self.field}:Q"

    @property
    def left(self) -> Any:
        """Position of the first value, from the row of the dataset `about`."""
        return alt.XDatum(self.categories[0]) if self.categories else "shortest:Q"

    @property
    def right(self) -> Any:
        """Position of the last value."""
        return alt.XDatum(self.categories[-1]) if self.categories else "longest:Q"

    @property
    def end(self) -> Any:
        """Position of the last value, as the second end of a line."""
        return alt.X2Datum(self.categories[-1]) if self.categories else "longest:Q"

    @property
    def leaves_the_best(self) -> bool:
        """Whether most curves begin at the metric's best value and get worse to the right, as over lengths."""
        return self.field == "length"

    @property
    def _points(self) -> alt.Scale:
        return alt.Scale(type="point", padding=0.5, domain=list(self.categories))


LENGTH = Across("length", "length", format="d")
STEP = Across("step", "training steps", label=STEP_LABEL)


@dataclass(frozen=True)
class ValueScale:
    """Scale for the values of one metric."""

    metric: Metric

    @property
    def best(self) -> float | None:
        """Value of a perfect answer, None for a metric without a perfect value."""
        return self.metric.perfect

    @property
    def up(self) -> int:
        """1 if most values are above the landmark, -1 if most are below. 1 without a landmark."""
        if self.metric.landmark is None:
            return 1
        return self.metric.sign if self._landmark_is_best else -self.metric.sign

    def landmark_side(self, leaving: bool) -> Literal["left", "right"]:
        """Side of the plot with few curves, for the landmark's name.

        Curves leave the best value as lengths grow, and approach the best value as steps grow.
        """
        return "right" if self._landmark_is_best == leaving else "left"

    @property
    def always_shown(self) -> list[float]:
        """Values always on the axis, besides the landmark, so that tiny differences look tiny."""
        return [value for value in (self.metric.threshold, self.best) if value is not None and value != self.metric.landmark]

    @property
    def impossible(self) -> str:
        """Vega expression: whether the metric cannot take `datum.value`."""
        ends = {"<": self.metric.low, ">": self.metric.high}
        beyond = [f"datum.value {side} {end}" for side, end in ends.items() if end is not None]
        return " || ".join(beyond) or "false"

    @property
    def label(self) -> str:
        """Vega expression for the label at `datum.value`, about five characters wide at most."""
        size = "abs(datum.value)"
        return f"{size} >= 1e4 || 0 < {size} && {size} < 1e-3 ? format(datum.value, '~s') : datum.label"

    @property
    def _landmark_is_best(self) -> bool:
        return self.metric.landmark is not None and self.metric.landmark == self.best
