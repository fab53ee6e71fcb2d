"""Curves of a figure: scales, colours, shapes and dashes of entries, layers of marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any, Literal

import altair as alt

from lgbench.results.metrics import Metric

LENGTH_LABEL = "format(datum.value, 'd')"
STEP_LABEL = "datum.value < 1e4 ? format(datum.value, 'd') : format(datum.value, '.2~s')"
"""Vega expression for labels such as 976, 16k, 1M."""
SETTING_LABEL = (
    "0 < abs(datum.value) && abs(datum.value) < 1e-3 ? format(datum.value, '.3~e') : "
    "format(datum.value, abs(datum.value) < 1e4 ? '~g' : '.3~s')"
)
"""Vega expression for labels such as 3e-4, 0.001, 32, 12.5k."""

INSET = 6
"""Room between an end of the horizontal axis and the value next to it, in points."""
DIGIT = 4
"""Width of a digit, in points."""
SEPARATION = 4
"""Room between labels of values, in points: a reader's font may be wider than the one that places were found with."""


@dataclass(frozen=True)
class Across:
    """Horizontal axis of lengths, training steps, or values of a setting."""

    field: Literal["length", "step", "setting"]
    """Field of the data."""
    title: str
    label: str
    """Vega expression for the label at `datum.value`."""
    scale: Literal["log", "linear"] = "log"
    categories: tuple[str, ...] = ()
    """All values in order, at equal distances and without a scale, if some values are not numbers."""

    def encoded(self, marked: Sequence[float], ends: tuple[Any, Any], title: str | None, width: float) -> alt.X:
        """Encoding of the field from `ends[0]` to `ends[1]`, with ticks at `marked`, and labels where room allows.

        `width` is that of a panel.
        """
        if self.categories:
            # Every property is set, because Vega-Lite's defaults rotate the labels of categories and align rotated labels.
            straight: dict[str, Any] = {"labelAngle": 0, "labelAlign": "center", "labelBaseline": "top", "labelLimit": 60}
            axis = alt.Axis(labelOverlap="greedy", labelSeparation=SEPARATION, **straight)
            scale = alt.Scale(type="point", padding=0.5, domain=list(self.categories))
            return alt.X(f"{self.field}:N", title=title, axis=axis, scale=scale, sort=list(self.categories))
        label = f"indexof({self.labelled(marked, ends, width - 2 * INSET)}, datum.value) < 0 ? '' : {self.label}"
        axis = alt.Axis(values=marked, grid=True, labelOverlap=False, labelExpr=label, tickRound=False)
        kind: dict[str, Any] = {"type": "log", "base": 2} if self.scale == "log" else {"type": "linear", "zero": False}
        return alt.X(f"{self.field}:Q", title=title, axis=axis, scale=alt.Scale(**kind, nice=False, padding=INSET))

    def labelled(self, marked: Sequence[float], ends: tuple[float, float], width: float) -> list[float]:
        """Values with room for a label, the last and the first before others. The ends of the axis are `width` apart.

        >>> sorted(LENGTH.labelled([1, 2, 4, 8, 16, 32, 64, 128, 256, 512], (1, 512), 70))
        [1, 4, 16, 64, 512]
        """
        low, high = map(self._place, ends)
        unit, shown = width / ((high - low) or 1), dict[float, tuple[float, float]]()
        for value in dict.fromkeys([max(marked), min(marked), *sorted(marked, reverse=True)]):
            half = (len(f"{value:g}") * DIGIT + SEPARATION) / 2
            start, end = self._place(value) * unit - half, self._place(value) * unit + half
            if all(end <= other or start >= beyond for other, beyond in shown.values()):
                shown[value] = start, end
        return list(shown)

    def _place(self, value: float) -> float:
        return log2(value) if self.scale == "log" else value


LENGTH = Across("length", "length", LENGTH_LABEL)
STEP = Across("step", "training steps", STEP_LABEL)


@dataclass(frozen=True)
class Panel:
    """Curves of entries with axes: a part of a figure."""

    metric: Metric
    title: Sequence[str]
    """Lines of the panel's title, hidden in a figure with a single panel."""
    across: Across
    marked: Sequence[float]
    """Lengths, steps or settings with a tick. Ticks have labels where room allows."""
    ends: tuple[Any, Any]
    """First and last value of the horizontal axis."""
    cells: Sequence[Mapping[str, Any]]
    """Rows of entry, label, length, step or setting, mean, low, high, n, context_free. Low and high are null for a single seed,
    context_free is null if unknown. Rows of a logarithmic panel have `band`, too, the lower end of the drawn interval."""
    context_free: Sequence[Mapping[str, Any]]
    """Rows of length, step or setting, and mean of the context-free baseline; empty if unknown."""
    train_length: int = 0
    """Longest training length, shaded; 0 on an axis without lengths."""
    shown: Sequence[float] = ()
    """Values always on the vertical axis, besides the values of the metric."""
    logarithmic: bool = False
    """Whether the vertical axis is logarithmic, with all values above 0."""

    @property
    def landmark_is_best(self) -> bool:
        """Whether the landmark of the metric is the value of a perfect answer."""
        return self.metric.landmark is not None and self.metric.landmark == self.metric.perfect

    @property
    def up(self) -> int:
        """1 if most values are above the landmark, -1 if most are below. 1 without a landmark."""
        if self.metric.landmark is None:
            return 1
        return self.metric.sign if self.landmark_is_best else -self.metric.sign


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
    """Index of the colour, shape and dash of each entry, from its position in `order`, the same for all figures.

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
TEXT = 7
"""Height of text, in points."""
ROOM = 11
"""Space without data at both ends of the vertical axis, for text, in points."""
LABELS = 18
"""Width of the labels of the vertical axis, in points."""


@dataclass(frozen=True)
class Look:
    """Sizes of the marks of a panel, in points."""

    line: float
    symbol: float
    """Area of a point."""
    values: int
    """Approximate number of labelled values."""


ALONE, SMALL = Look(line=1.1, symbol=17, values=5), Look(line=0.9, symbol=11, values=4)
"""Looks of a single panel, and of one of several."""


class Styles:
    """Appearance of entries: encodings of the field `label`, from a slot for each label."""

    def __init__(self, labels: Mapping[str, int]) -> None:
        def scale(kinds: Sequence[Any]) -> alt.Scale:
            return alt.Scale(domain=list(labels), range=[kinds[slot % len(kinds)] for slot in labels.values()])

        self.color = alt.Color("label:N", scale=scale(COLOURS))
        self.shape = alt.Shape("label:N", scale=scale(SHAPES))
        self.dash = alt.StrokeDash("label:N", scale=scale(DASHES))


def layers(
    panel: Panel, datasets: tuple[str, str], look: Look, x: alt.X, y_title: str | None, styles: Styles
) -> list[alt.Chart]:
    """Layers of curves over training lengths, landmark and context-free baseline.

    `datasets` are the names of the rows of cells and of the context-free baseline.
    """
    cells, context_free = (alt.Chart(alt.NamedData(name=name)) for name in datasets)
    dashed: dict[str, Any] = {"strokeDash": list(CONTEXT_FREE_DASH), "strokeWidth": look.line, "color": GREY}
    context_free = context_free.mark_line(**dashed, description="context-free baseline")
    base, y = cells.encode(x=x), _upright(panel, look, y_title)
    # A white halo keeps overlapping points distinct.
    points = base.mark_point(filled=True, size=look.symbol, opacity=1, stroke="white", strokeWidth=look.line * 0.3)
    return [
        *_facts(panel, look),
        *([context_free.encode(x=x, y="mean:Q")] if panel.context_free else []),
        base.mark_area(opacity=0.15).encode(styles.color, y=alt.Y("band:Q" if panel.logarithmic else "low:Q"), y2="high:Q"),
        base.mark_line(strokeWidth=look.line).encode(styles.color, styles.dash, y=y),
        points.encode(styles.color, styles.shape, y=y),
    ]


def _facts(panel: Panel, look: Look) -> list[alt.Chart]:
    """Training lengths and landmark, with names above and below the data, and values always on the axis."""
    facts = alt.Chart(alt.InlineData(values=[{}]))
    text: dict[str, Any] = {"baseline": "middle", "dy": panel.up * ROOM / 2, "fontSize": TEXT, "color": GREY}
    # Tiny differences look tiny.
    of_metric = (value for value in (panel.metric.threshold, panel.metric.perfect) if value != panel.metric.landmark)
    values = [value for value in (*of_metric, *panel.shown) if value is not None and (value > 0 or not panel.logarithmic)]
    return [
        *(_trained(facts, panel, text) if panel.train_length else []),
        *([] if panel.logarithmic else _landmark(facts, panel, look, text)),
        *(facts.mark_point(opacity=0, aria=False).encode(y=alt.datum(value)) for value in values),
    ]


def _trained(facts: alt.Chart, panel: Panel, text: dict[str, Any]) -> list[alt.Chart]:
    """Training lengths as a shaded area."""
    said = f"trained to {panel.train_length}"
    area = facts.mark_rect(color=SHADE, opacity=0.17, description=said)
    name = facts.mark_text(text=said, align="left", dx=3, **text)
    return [
        area.encode(x=alt.datum(panel.train_length), x2=alt.value(0)),
        name.encode(x=alt.value(0), y=alt.value(0 if panel.up > 0 else "height")),
    ]


def _landmark(facts: alt.Chart, panel: Panel, look: Look, text: dict[str, Any]) -> list[alt.Chart]:
    """Line and name of the metric's landmark."""
    value, name = panel.metric.landmark, panel.metric.landmark_name or ""
    if value is None:
        return []
    first, last = panel.ends
    landmark = facts.encode(y=alt.datum(value))
    # The name stands on the side with few curves: they leave the best value as lengths grow, and approach it as steps grow.
    right = panel.landmark_is_best == (panel.across.field == "length")
    line = landmark.mark_rule(strokeDash=list(LANDMARK_DASH), strokeWidth=look.line * 0.7, color=GREY, aria=False)
    said = landmark.mark_text(text=name, description=f"{name}: {value}", align="right" if right else "left", **text)
    return [line.encode(x=alt.XDatum(first), x2=alt.X2Datum(last)), said.encode(x=alt.XDatum(last if right else first))]


def _upright(panel: Panel, look: Look, title: str | None) -> alt.Y:
    """Vertical axis, without ticks and labels at impossible values in the space around the data."""
    if panel.logarithmic:
        labels = alt.Axis(tickCount=look.values, grid=True, format="~g", minExtent=LABELS, maxExtent=LABELS)
        return alt.Y("mean:Q", title=title, axis=labels, scale=alt.Scale(type="log", nice=False, padding=ROOM))
    ends = {"<": panel.metric.low, ">": panel.metric.high}
    impossible = " || ".join(f"datum.value {side} {end}" for side, end in ends.items() if end is not None) or "false"
    size = "abs(datum.value)"
    label = f"{size} >= 1e4 || 0 < {size} && {size} < 1e-3 ? format(datum.value, '~s') : datum.label"  # five characters at most
    hidden = {"condition": {"test": impossible, "value": 0}, "value": 1}
    marks = alt.Axis(
        tickCount=look.values,
        tickRound=False,
        tickOpacity=hidden,
        grid=True,
        gridOpacity=hidden,
        labelExpr=f"({impossible}) ? '' : ({label})",
        minExtent=LABELS,
        maxExtent=LABELS,
    )
    return alt.Y("mean:Q", title=title, axis=marks, scale=alt.Scale(zero=False, nice=False, padding=ROOM))
