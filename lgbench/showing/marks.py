"""What curves over lengths look like, on paper and on a page: colours, shapes and dashes of entries, axes, layers of marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import altair as alt

COLOURS = ("#332288", "#EE3377", "#009988", "#000000", "#999933", "#AA4499", "#882255", "#117733")
"""Of Paul Tol's schemes and black: the eight that differ most in the eyes of everyone and stand out from white by 3 to 1."""
SALTIRE = "M-1-.6L-.6-1 0-.4 .6-1 1-.6 .4 0 1 .6 .6 1 0 .4-.6 1-1 .6-.4 0Z"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", SALTIRE, "triangle-right")
DASHES = ((1, 0), (5, 2), (1.5, 1.5), (7, 2, 1.5, 2), (3, 1.5))
"""Five, so that the ninth entry, whose colour and shape are those of the first, has dashes of its own."""
DIFFERENT = len(COLOURS) * len(DASHES)

GREY = "#555555"
SHADE = "#7D90B5"
"""Drawn as a tint, which suits a dark page too."""


@dataclass(frozen=True)
class Scale:
    """What the vertical axis of a metric shows."""

    name: str
    title: str
    reference: float
    """What a reader compares with, drawn as a dashed line: the best that there is, or chance."""
    reference_name: str
    reference_side: Literal["left", "right"]
    """Where its name stands: where most curves are far from it."""
    other_end: float
    """The axis reaches at least from the reference to here, so that tiny differences look tiny."""

    @property
    def up(self) -> int:
        """1 where data stand above the reference, -1 where they stand below."""
        return 1 if self.other_end > self.reference else -1


SCALES = {
    "tvd": Scale("TVD", "total variation distance (TVD)", 0.0, "exact", "right", 0.1),
    "accuracy": Scale("accuracy", "accuracy", 1.0, "exact", "right", 0.9),
    "roc_auc": Scale("ROC AUC", "area under the curve (ROC AUC)", 0.5, "chance", "left", 1.0),
}


@dataclass(frozen=True)
class Look:
    """Sizes: points on paper, pixels on a screen. And colours of what shows no data, which a page has of its own."""

    text: float
    line: float
    symbol: float
    """The area of a point."""
    room: float
    """Kept free of data at both ends of the vertical axis, for what is written there."""
    grey: Any = alt.Undefined
    halo: Any = alt.Undefined
    """Around points, so that those that overlap can be told apart."""


PAPER = Look(text=7, line=1.1, symbol=17, room=11, grey=GREY, halo="white")
PANEL = replace(PAPER, line=0.9, symbol=11)
SCREEN = Look(text=12, line=2, symbol=50, room=18)


@dataclass(frozen=True)
class Axes:
    """What is written at the axes of one panel."""

    lengths: Sequence[int]
    """Marked where they are in sight, and labelled as far as there is room."""
    length_title: str | None
    value_title: str | None
    values: int = 5
    """About so many values are labelled."""
    labels: Any = alt.Undefined
    """The width of their labels, whatever they are."""


@dataclass(frozen=True)
class Styles:
    """How entries look: encodings of the field `label`."""

    color: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash

    @classmethod
    def of(cls, domain: Any, count: int = DIFFERENT) -> Styles:
        """The first label of the domain of a scale has the first of each kind, and so on, up to `count`."""

        def scale(kinds: Sequence[Any]) -> alt.Scale:
            return alt.Scale(domain=domain, range=[kinds[i % len(kinds)] for i in range(count)])

        return cls(
            alt.Color("label:N", scale=scale(COLOURS)),
            alt.Shape("label:N", scale=scale(SHAPES)),
            alt.StrokeDash("label:N", scale=scale(DASHES)),
        )


def layers(
    scale: Scale, axes: Axes, cells: str, about: str, look: Look, styles: Styles, hover: alt.Parameter | None = None
) -> list[alt.Chart]:
    """Layers: curves of the dataset `cells`, over what `about` says of the board. `hover` is what chooses one entry.

    `cells` has rows of entry, label, length, mean, low, high, n; `about` one row of train_length, shortest, longest.
    """
    facts = alt.Chart(alt.NamedData(name=about))
    base, y = alt.Chart(alt.NamedData(name=cells)).encode(x=_across(axes)), _upright(axes, look)
    points = base.mark_point(filled=True, size=look.symbol, opacity=1, stroke=look.halo, strokeWidth=look.line * 0.3)
    points = points.encode(styles.color, styles.shape, y=y, tooltip=alt.value(alt.expr(_tooltip(scale))), **_faded(hover, 1))
    return [
        *_facts(facts, scale, look),
        base.mark_area(opacity=0.15).encode(styles.color, y=alt.Y("low:Q"), y2="high:Q", **_faded(hover, 0.15)),
        base.mark_line(strokeWidth=look.line).encode(styles.color, styles.dash, y=y, **_faded(hover, 1)),
        points if hover is None else points.add_params(hover).properties(name="points"),
    ]


def _faded(hover: alt.Parameter | None, opacity: float) -> dict[str, Any]:
    """Opacity of the entry that is chosen, and of the others next to it."""
    return {} if hover is None else {"opacity": alt.when(hover).then(alt.value(opacity)).otherwise(alt.value(opacity * 0.15))}


def _facts(facts: alt.Chart, scale: Scale, look: Look) -> list[alt.Chart]:
    """The training range and the reference, and what they are, said above and below the data."""
    trained = facts.transform_filter("datum.train_length > 0").transform_calculate(said="'trained to ' + datum.train_length")
    reference = facts.encode(y=alt.datum(scale.reference))
    text: dict[str, Any] = {"baseline": "middle", "dy": scale.up * look.room / 2, "fontSize": look.text, "color": look.grey}
    opposite = alt.value(0 if scale.up > 0 else "height")
    line = reference.mark_rule(strokeDash=[2, 2], strokeWidth=look.line * 0.7, color=look.grey, aria=False)
    said = f"{scale.reference_name}: {scale.reference}"
    name = reference.mark_text(text=scale.reference_name, description=said, align=scale.reference_side, **text)
    return [
        trained.mark_rect(color=SHADE, opacity=0.17).encode(x="train_length:Q", x2=alt.value(0)),
        trained.mark_text(align="left", dx=3, **text).encode(text="said:N", x=alt.value(0), y=opposite),
        line.encode(x="shortest:Q", x2="longest:Q"),
        name.encode(x="shortest:Q" if scale.reference_side == "left" else "longest:Q"),
        facts.mark_point(opacity=0, aria=False).encode(y=alt.datum(scale.other_end)),
    ]


def _across(axes: Axes) -> alt.X:
    marks = alt.Axis(values=list(axes.lengths), labelOverlap="parity", labelSeparation=2, format="d", tickRound=False)
    scale = alt.Scale(type="log", base=2, nice=False, padding=6)
    return alt.X("length:Q", title=axes.length_title, axis=marks, scale=scale)


def _upright(axes: Axes, look: Look) -> alt.Y:
    """The room around the data has no marks where no value can be."""
    nowhere = "datum.value < 0 || datum.value > 1"
    hidden = {"condition": {"test": nowhere, "value": 0}, "value": 1}
    marks = alt.Axis(
        tickCount=axes.values,
        tickRound=False,
        tickOpacity=hidden,
        grid=True,
        gridOpacity=hidden,
        labelExpr=f"{nowhere} ? '' : datum.label",
        minExtent=axes.labels,
        maxExtent=axes.labels,
    )
    return alt.Y("mean:Q", title=axes.value_title, axis=marks, scale=alt.Scale(zero=False, nice=False, padding=look.room))


def _tooltip(scale: Scale) -> str:
    """An expression, since some versions of Vega-Lite lose words in the tooltip of the nearest point.

    What is under the pointer is then a cell around the point, whose datum is the point.
    """
    row = "(datum.datum || datum)"
    said = {
        "entry": f"{row}.entry",
        "length": f"{row}.length",
        scale.name: f"format({row}.mean, '.4f')",
        "95 % interval": f"isValid({row}.low) ? format({row}.low, '.4f') + ' to ' + format({row}.high, '.4f') : 'none'",
        "seeds": f"{row}.n",
    }
    return "{" + ", ".join(f"'{name}': {value}" for name, value in said.items()) + "}"
