"""Curves on paper and on the page: colours, shapes and dashes of entries, axes, and layers of marks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt

from lgbench.reports.axes import LENGTH, Across, ValueScale

COLOURS = ("#332288", "#EE3377", "#009988", "#000000", "#999933", "#AA4499", "#882255", "#117733")
"""Seven colours of Paul Tol's schemes, and black: distinct for colour-blind readers, with a contrast to white of at least 3:1.
"""
SALTIRE = "M-1-.6L-.6-1 0-.4 .6-1 1-.6 .4 0 1 .6 .6 1 0 .4-.6 1-1 .6-.4 0Z"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", SALTIRE, "triangle-right")
DASHES = ((1, 0), (5, 2), (1.5, 1.5), (7, 2, 1.5, 2), (3, 1.5))
"""Five dashes: the ninth entry repeats the colour and shape of the first entry with a different dash."""
MAX_ENTRIES = len(COLOURS) * len(DASHES)
"""Number of distinguishable entries."""

GREY = "#555555"
LANDMARK_DASH = (2, 2)
CHANCE_DASH = (4, 3)
SHADE = "#7D90B5"
"""Colour of the shading, a tint suitable for a dark page too."""


@dataclass(frozen=True)
class Look:
    """Sizes in points on paper or pixels on a screen, and colours of marks without data, set by the style of a page."""

    text: float
    line: float
    symbol: float
    """Area of a point."""
    room: float
    """Space without data at both ends of the vertical axis, for text."""
    grey: Any = alt.Undefined
    halo: Any = alt.Undefined
    """Colour around points, to keep overlapping points distinct."""


PAPER = Look(text=7, line=1.1, symbol=17, room=11, grey=GREY, halo="white")
PANEL = replace(PAPER, line=0.9, symbol=11)
SCREEN = Look(text=12, line=2, symbol=50, room=18)


@dataclass(frozen=True)
class Axes:
    """Ticks, labels and titles of the axes of one panel."""

    marked: Any
    """Lengths or steps with a tick, or a Vega expression. Ticks have labels where room allows."""
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
    """Rows of entry, label, length, step or setting, mean, low, high, n, chance. Low and high are null for a single seed,
    chance is null if unknown."""
    chance: str | None
    """Rows of length, step or setting, and mean of the chance level. None for a panel without chance."""
    about: str
    """One row of train_length, shortest and longest (the ends of the horizontal axis), and lengths (the values with a tick)."""


@dataclass(frozen=True)
class Styles:
    """Appearance of entries: encodings of the field `label`."""

    color: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash

    @classmethod
    def of(cls, domain: Any, count: int = MAX_ENTRIES) -> Styles:
        """Styles of `count` labels: colours, shapes and dashes repeat in order over the labels of `domain`."""

        def scale(kinds: Sequence[Any]) -> alt.Scale:
            return alt.Scale(domain=domain, range=[kinds[i % len(kinds)] for i in range(count)])

        return cls(
            alt.Color("label:N", scale=scale(COLOURS)),
            alt.Shape("label:N", scale=scale(SHAPES)),
            alt.StrokeDash("label:N", scale=scale(DASHES)),
        )


def layers(
    scale: ValueScale, axes: Axes, data: Data, look: Look, styles: Styles, hover: alt.Parameter | None = None
) -> list[alt.Chart]:
    """Layers of curves over training lengths, landmark and chance level. `hover` highlights one entry.

    Only axes of lengths show training lengths.
    """
    base = alt.Chart(alt.NamedData(name=data.cells)).encode(x=axes.across.encoded(axes.marked, axes.title))
    y = _upright(scale, axes, look)
    points = base.mark_point(filled=True, size=look.symbol, opacity=1, stroke=look.halo, strokeWidth=look.line * 0.3)
    tooltip = alt.value(alt.expr(_tooltip(scale, axes.across)))
    points = points.encode(styles.color, styles.shape, y=y, tooltip=tooltip, **_faded(hover, 1))
    return [
        *_facts(alt.Chart(alt.NamedData(name=data.about)), scale, axes, look),
        *([] if data.chance is None else [_chance(data.chance, axes.across, look)]),
        base.mark_area(opacity=0.15).encode(styles.color, y=alt.Y("low:Q"), y2="high:Q", **_faded(hover, 0.15)),
        base.mark_line(strokeWidth=look.line).encode(styles.color, styles.dash, y=y, **_faded(hover, 1)),
        points if hover is None else points.add_params(hover).properties(name="points"),
    ]


def _faded(hover: alt.Parameter | None, opacity: float) -> dict[str, Any]:
    """Opacity of the highlighted entry and of all other entries."""
    return {} if hover is None else {"opacity": alt.when(hover).then(alt.value(opacity)).otherwise(alt.value(opacity * 0.15))}


def _chance(dataset: str, across: Across, look: Look) -> alt.Chart:
    """Curve of the chance level, named in the legend."""
    line = alt.Chart(alt.NamedData(name=dataset)).mark_line(
        strokeDash=list(CHANCE_DASH), strokeWidth=look.line, color=look.grey, description="chance level"
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
    chance = '{"chance": ' + f"format({row}.chance, '.4f')" + "}"
    return f"isValid({row}.chance) ? merge({always}, {chance}) : {always}"
