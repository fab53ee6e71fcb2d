"""Axes and marks of figures: scales, colours, shapes and dashes of entries, layers of curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
        return [
            value
            for value in (self.metric.threshold, self.metric.perfect)
            if value is not None and value != self.metric.landmark
        ]

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
        return self.metric.landmark is not None and self.metric.landmark == self.metric.perfect


COLOURS = ("#332288", "#EE3377", "#009988", "#000000", "#999933", "#AA4499", "#882255", "#117733")
"""Seven colours of Paul Tol's schemes, and black: distinct for colour-blind readers, with a contrast to white of at least 3:1.
"""
SALTIRE = "M-1-.6L-.6-1 0-.4 .6-1 1-.6 .4 0 1 .6 .6 1 0 .4-.6 1-1 .6-.4 0Z"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", SALTIRE, "triangle-right")
DASHES = ((1, 0), (5, 2), (1.5, 1.5), (7, 2, 1.5, 2), (3, 1.5))
"""Five dashes: the ninth entry repeats the colour and shape of the first entry with a different dash."""
MAX_ENTRIES = len(COLOURS) * len(DASHES)
"""Number of distinguishable entries."""


def slots(entries: Sequence[str], order: Sequence[str]) -> dict[str, int]:
    """Slot of each entry, its place among colours, shapes and dashes: by its place in `order`, in which all figures agree.

    Where two entries meet in a colour, the later one takes the next free colour. The page does the same, in charts.js.

    >>> slots(["c", "a"], ["a", "b", "c"]), slots(["c", "k"], list("abcdefghijk"))
    ({'c': 2, 'a': 0}, {'c': 2, 'k': 3})
    """
    found: dict[str, int] = {}
    for entry in sorted(entries, key=order.index):
        start = order.index(entry)
        rounds = (len(COLOURS) * turn + (start + i) % len(COLOURS) for turn in range(len(DASHES)) for i in range(len(COLOURS)))
        found[entry] = next(slot for slot in rounds if slot not in found.values())
    return {entry: found[entry] for entry in entries}


GREY = "#555555"
LANDMARK_DASH = (2, 2)
CONTEXT_FREE_DASH = (4, 3)
SHADE = "#7D90B5"
"""Colour of the shading."""


@dataclass(frozen=True)
class Look:
    """Sizes in points, and colours of marks without data."""

    text: float
    line: float
    symbol: float
    """Area of a point."""
    room: float
    """Space without data at both ends of the vertical axis, for text."""
    grey: str
    halo: str
    """Colour around points, to keep overlapping points distinct."""


PAPER = Look(text=7, line=1.1, symbol=17, room=11, grey=GREY, halo="white")
PANEL = replace(PAPER, line=0.9, symbol=11)


@dataclass(frozen=True)
class Axes:
    """Ticks, labels and titles of the axes of one panel."""

    marked: Sequence[float]
    """Lengths or steps with a tick. Ticks have labels where room allows."""
    title: str | None
    value_title: str | None
    across: Across = LENGTH
    values: int = 5
    """Approximate number of labelled values."""
    labels: Any = alt.Undefined
    """Fixed width of the labels of values."""
    shown: Sequence[float] = ()
    """Values always on the axis, besides the values of the metric's scale."""
    logarithmic: bool = False
    """Whether the vertical axis is logarithmic."""


@dataclass(frozen=True)
class Data:
    """Names of the datasets of one panel."""

    cells: str
    """Rows of entry, label, length, step or setting, mean, low, high, n, context_free. Low and high are null for a single seed,
    context_free is null if unknown."""
    context_free: str | None
    """Rows of length, step or setting, and mean of the context-free baseline. None for a panel without."""
    about: str
    """One row of train_length, shortest and longest (the ends of the horizontal axis), and lengths (the values with a tick)."""


@dataclass(frozen=True)
class Styles:
    """Appearance of entries: encodings of the field `label`."""

    color: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash

    @classmethod
    def of(cls, domain: Any, slots: Sequence[int] = range(MAX_ENTRIES)) -> Styles:
        """Styles of the labels of `domain`, each with a slot."""

        def scale(kinds: Sequence[Any]) -> alt.Scale:
            return alt.Scale(domain=domain, range=[kinds[slot % len(kinds)] for slot in slots])

        return cls(
            alt.Color("label:N", scale=scale(COLOURS)),
            alt.Shape("label:N", scale=scale(SHAPES)),
            alt.StrokeDash("label:N", scale=scale(DASHES)),
        )


def layers(scale: ValueScale, axes: Axes, data: Data, look: Look, styles: Styles) -> list[alt.Chart]:
    """Layers of curves over training lengths, landmark and baseline. Only axes of lengths show training lengths."""
    base = alt.Chart(alt.NamedData(name=data.cells)).encode(x=axes.across.encoded(axes.marked, axes.title))
    y = _upright(scale, axes, look)
    points = base.mark_point(filled=True, size=look.symbol, opacity=1, stroke=look.halo, strokeWidth=look.line * 0.3)
    tooltip = alt.value(alt.expr(_tooltip(scale, axes.across)))
    points = points.encode(styles.color, styles.shape, y=y, tooltip=tooltip)
    return [
        *_facts(alt.Chart(alt.NamedData(name=data.about)), scale, axes, look),
        *([] if data.context_free is None else [_context_free(data.context_free, axes.across, look)]),
        base.mark_area(opacity=0.15).encode(styles.color, y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(strokeWidth=look.line).encode(styles.color, styles.dash, y=y),
        points,
    ]


def _context_free(dataset: str, across: Across, look: Look) -> alt.Chart:
    """Curve of the context-free baseline, named in the legend."""
    line = alt.Chart(alt.NamedData(name=dataset)).mark_line(
        strokeDash=list(CONTEXT_FREE_DASH), strokeWidth=look.line, color=look.grey, description="context-free baseline"
    )
    curve: alt.Chart = line.encode(x=across.plain, y="mean:Q")
    return curve


def _facts(facts: alt.Chart, scale: ValueScale, axes: Axes, look: Look) -> list[alt.Chart]:
    """Training lengths and landmark, with names above and below the data."""
    text: dict[str, Any] = {"baseline": "middle", "dy": scale.up * look.room / 2, "fontSize": look.text, "color": look.grey}
    values = [value for value in (*scale.always_shown, *axes.shown) if value > 0 or not axes.logarithmic]
    return [
        *(_trained(facts, scale, text) if axes.across.field == "length" else []),
        *([] if axes.logarithmic else _landmark(facts, scale, axes.across, look, text)),
        *(facts.mark_point(opacity=0, aria=False).encode(y=alt.datum(value)) for value in values),
    ]


def _trained(facts: alt.Chart, scale: ValueScale, text: dict[str, Any]) -> list[alt.Chart]:
    """Training lengths as a shaded area."""
    trained = facts.transform_filter("datum.train_length > 0").transform_calculate(said="'trained to ' + datum.train_length")
    opposite = alt.value(0 if scale.up > 0 else "height")
    return [
        trained.mark_rect(color=SHADE, opacity=0.17).encode(x="train_length:Q", x2=alt.value(0)),
        trained.mark_text(align="left", dx=3, **text).encode(text="said:N", x=alt.value(0), y=opposite),
    ]


def _landmark(facts: alt.Chart, scale: ValueScale, across: Across, look: Look, text: dict[str, Any]) -> list[alt.Chart]:
    """Line and name of the metric's landmark."""
    value, name = scale.metric.landmark, scale.metric.landmark_name or ""
    if value is None:
        return []
    landmark = facts.encode(y=alt.datum(value))
    side = scale.landmark_side(across.leaves_the_best)
    line = landmark.mark_rule(strokeDash=list(LANDMARK_DASH), strokeWidth=look.line * 0.7, color=look.grey, aria=False)
    said = landmark.mark_text(text=name, description=f"{name}: {value}", align=side, **text)
    return [
        line.encode(x=across.left, x2=across.end),
        said.encode(x=across.left if side == "left" else across.right),
    ]


def _upright(scale: ValueScale, axes: Axes, look: Look) -> alt.Y:
    """Vertical axis, without ticks and labels at impossible values in the space around the data."""
    hidden = {"condition": {"test": scale.impossible, "value": 0}, "value": 1}
    marks = alt.Axis(
        tickCount=axes.values,
        tickRound=False,
        tickOpacity=hidden,
        grid=True,
        gridOpacity=hidden,
        labelExpr=f"({scale.impossible}) ? '' : ({scale.label})",
        minExtent=axes.labels,
        maxExtent=axes.labels,
    )
    if axes.logarithmic:
        room = alt.Scale(type="log", nice=False, padding=look.room)
        labels = alt.Axis(tickCount=axes.values, grid=True, format="~g", minExtent=axes.labels, maxExtent=axes.labels)
        return alt.Y("mean:Q", title=axes.value_title, axis=labels, scale=room)
    return alt.Y("mean:Q", title=axes.value_title, axis=marks, scale=alt.Scale(zero=False, nice=False, padding=look.room))


def _tooltip(scale: ValueScale, across: Across) -> str:
    """Vega expression for the tooltip, because some versions of Vega-Lite lose words in the tooltip of the nearest point.

    For the nearest point, the pointer is over a cell around the point, and the datum of the cell is the point.
    """
    row = "(datum.datum || datum)"
    said = {
        "entry": f"{row}.entry",
        across.title if across.field == "setting" else across.field: f"{row}.{across.field}",
        scale.metric.label: f"format({row}.mean, '.4f')",
        "95 % interval": f"isValid({row}.low) ? format({row}.low, '.4f') + ' to ' + format({row}.high, '.4f') : 'none'",
        "seeds": f"{row}.n",
    }
    # Labels come from untrusted files: JSON writes each label as one string of the expression.
    always = "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in said.items()) + "}"
    context_free = '{"context-free baseline": ' + f"format({row}.context_free, '.4f')" + "}"
    return f"isValid({row}.context_free) ? merge({always}, {context_free}) : {always}"
