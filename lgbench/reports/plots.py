"""Plots of boards: curves of the page, choice of entries, and files of figures.

A single Vega-Lite specification, built with Altair, makes PNG, SVG, PDF and the curves of a page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from lgbench.errors import UsageError, unknown
from lgbench.reports.drawing import WAYS_OUT, drawn
from lgbench.reports.figure import Spec
from lgbench.reports.files import replace
from lgbench.reports.marks import COLOURS, LENGTH, MAX_ENTRIES, SCREEN, Across, Axes, Data, Styles, ValueScale, layers
from lgbench.results.boards import Board
from lgbench.results.entries import find_entry
from lgbench.results.metrics import Metric

MAX_UNNAMED = len(COLOURS)
"""Maximum number of entries drawn by default, all with different colours. More entries must be named."""
MAX_PANELS = 40
"""Maximum number of panels of an overview, limited by a page of a paper."""

DOTS_PER_INCH = 300
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite written by Altair."""


def page_spec(metric: Metric, across: Across = LENGTH) -> Spec:
    """Specification of the curves of a board on the page; the page adds the data and the colours of marks without data.

    Datasets have the names and columns of :class:`lgbench.reports.marks.Data`. The parameter `labels` is null or a list of all
    labels, including hidden entries, whose order decides colours, shapes and dashes.
    """
    order = alt.param(name="labels", value=None)
    styles = Styles.of(alt.expr("labels || (length(data('cells')) ? pluck(data('cells'), 'label') : [''])"))
    hover = alt.selection_point(name="hover", on="pointerover", clear="pointerout", nearest=True, fields=["label"])
    axes = Axes(alt.expr("data('about')[0].lengths"), across.title, metric.title, across)
    data = Data("cells", "chance", "about")
    chart = alt.LayerChart(layer=layers(ValueScale(metric), axes, data, SCREEN, styles, hover), height=320)
    text: dict[str, Any] = {"labelFontSize": SCREEN.text, "titleFontSize": SCREEN.text}
    legend: dict[str, Any] = {"orient": "bottom", "title": None, "labelLimit": 0, "symbolOpacity": 1}
    # Without initial cells and a row of `about`, scales would have no ends, and the view would never recover.
    datasets = {"cells": [], "chance": [], "about": [{"train_length": 1, "shortest": 1, "longest": 2, "lengths": []}]}
    spec: Spec = (
        chart.add_params(order)
        .properties(width="container", autosize=alt.AutoSizeParams(type="fit-x", contains="padding", resize=True))
        .properties(datasets=datasets)
        .configure_axis(**text, titleFontWeight="normal", titleLimit=chart.height)
        .configure_legend(**text, **legend, columns=alt.expr("width < 520 ? 1 : 2"))
        .to_dict()
    )
    return spec


def entries_of(boards: Sequence[Board]) -> list[str]:
    """Entries of all boards without duplicates, in the order of the boards."""
    return list(dict.fromkeys(row.entry for board in boards for row in board.rows))


def chosen(known: Sequence[str], named: Sequence[str]) -> tuple[list[str], list[str]]:
    """Entries to draw, and entries left out for want of colours.

    Without named entries, all raw weights are candidates, cut to the first of `known` and sorted by name.
    """
    if named:
        entries = list(dict.fromkeys(find_entry(name, known) for name in named))
        if len(entries) > MAX_ENTRIES:
            raise UsageError(f"{len(entries)} entries are named, and a figure can draw {MAX_ENTRIES}; name fewer with --entry")
        return entries, []
    raw = [entry for entry in known if "@" not in entry] or [*known]
    return sorted(raw[:MAX_UNNAMED]), raw[MAX_UNNAMED:]


def known_format(path: Path) -> str:
    """Extension of a file for a figure. Raises UsageError for an unknown format."""
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise unknown("format", ending or path.name, FORMATS)
    return ending


def write(spec: Spec, path: Path) -> None:
    """Draw a specification in the format of the path's extension, in place of an older file.

    Raises UsageError if the format is unknown or writing fails, and DrawingFailed if drawing fails.
    """
    replace(path, FORMATS[known_format(path)](spec))


def _drawn(function: str, spec: Spec, **options: Any) -> bytes:
    return drawn(
        function, spec, VEGA_LITE, ways_out=f"{WAYS_OUT}; a figure named FILE.json is the specification itself", **options
    )


def _svg(spec: Spec) -> bytes:
    """SVG with the size in points, because numbers without a unit would be pixels, a smaller unit."""
    picture = _drawn("vegalite_to_svg", spec)
    return re.sub(rb'\b(width|height)="([\d.]+)"', rb'\1="\2pt"', picture, count=2)


FORMATS: dict[str, Callable[[Spec], bytes]] = {
    ".png": lambda spec: _drawn("vegalite_to_png", spec, ppi=DOTS_PER_INCH),
    ".svg": _svg,
    ".pdf": lambda spec: _drawn("vegalite_to_pdf", spec),
    ".json": lambda spec: json.dumps(spec, indent=1).encode() + b"\n",
}
