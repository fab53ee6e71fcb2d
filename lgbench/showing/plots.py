"""Boards as figures: one Vega-Lite specification, built with Altair, is a PNG, an SVG, a PDF and the curves of a page.

A figure is as wide as a printed column and laid out in points, so that what is 7 high here is 7 points high on paper.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import Any

import altair as alt
import vl_convert

from lgbench.errors import UsageError, unknown
from lgbench.ranking.boards import LOWER_IS_BETTER, Board
from lgbench.ranking.entries import find_entry, short
from lgbench.showing.marks import COLOURS, DIFFERENT, GREY, PANEL, PAPER, SCALES, SCREEN, Axes, Styles, layers
from lgbench.showing.replacing import replace

Spec = dict[str, Any]

MOST = len(COLOURS)
"""So many entries are told apart by colour; more are drawn only where they were asked for by name."""

DOTS_PER_INCH = 300
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The version that Altair writes."""

INK = "#222222"
GRID = "#E4E4E4"

# Where things stand in a figure, in points. All widths are said here: left to Vega, a figure would be as wide as its text.
WIDTH = 237
"""Of a figure: 3.3 inches, in whole points as Vega has it."""
LEFT = 32
"""Of the first column of panels: labels and title of the vertical axis."""
LABELS = 18
RIGHT = 8
"""Half of the last length's label."""
BETWEEN = RIGHT + LABELS + 6
ROW = 10
"""From one line of text to the next."""
SAMPLE = 24
"""The width of a line in the legend."""


def figure(boards: Sequence[Board], entries: Sequence[str]) -> Spec:
    """One board, or an overview with a panel for each. The order of `entries` decides what each looks like."""
    labels = dict(zip(entries, short(entries), strict=True))
    styles = Styles.of(list(labels.values()), len(labels))
    alone = len(boards) == 1
    columns = 1 if alone else 2
    width = (WIDTH - LEFT - RIGHT - (columns - 1) * BETWEEN) / columns
    panels: list[alt.LayerChart] = []
    datasets: dict[str, Any] = {}
    for place, board in enumerate(boards):
        scale, cells, about = SCALES[board.metric], f"cells {place}", f"about {place}"
        datasets |= {cells: _cells(board, labels), about: _about(board)}
        axes = Axes(
            lengths=_marked(board.all_lengths),
            length_title="length" if place >= len(boards) - columns else None,
            value_title=scale.title if alone else None if place % columns else scale.name,
            values=5 if alone else 4,
            labels=LABELS,
        )
        curves = layers(scale, axes, cells, about, PAPER if alone else PANEL, styles)
        titles = [] if alone else [_panel_title(told_apart(board, boards))]
        panels.append(alt.LayerChart(layer=[*curves, *titles], width=width, height=125 if alone else 64))
    row = 30 + ROW * (max(len(told_apart(board, boards)) for board in boards) - 1)
    # Between panels is as much space as is said here, whatever stands in it: in "flush", labels do not move them.
    grid = alt.concat(*panels, columns=columns, bounds="flush", spacing={"row": row, "column": BETWEEN})
    spec = _on_paper(alt.vconcat(grid, _legend(list(labels.values()), styles), spacing=6), *heading(boards, entries))
    return spec | {"datasets": spec.get("datasets", {}) | datasets}  # Altair would copy them at every step


def page_spec(metric: str) -> Spec:
    """The curves of one board for a page, which brings the data, and the colours of all that shows no data.

    The dataset `cells` has rows of entry, label, length, mean, low, high, n; `about` has one row of train_length, shortest,
    longest. The parameter `labels` is null, or all labels, drawn or not, in an order that decides what each looks like.
    """
    order = alt.param(name="labels", value=None)
    styles = Styles.of(alt.expr("labels || (length(data('cells')) ? pluck(data('cells'), 'label') : [''])"))
    hover = alt.selection_point(name="hover", on="pointerover", clear="pointerout", nearest=True, fields=["label"])
    axes = Axes([2**i for i in range(31)], "length", SCALES[metric].title)
    chart = alt.LayerChart(layer=layers(SCALES[metric], axes, "cells", "about", SCREEN, styles, hover), height=320)
    text: dict[str, Any] = {"labelFontSize": SCREEN.text, "titleFontSize": SCREEN.text}
    legend: dict[str, Any] = {"orient": "bottom", "title": None, "labelLimit": 0, "symbolOpacity": 1}
    # Without cells and a row of `about`, scales would have no ends, and a view that starts so never recovers.
    datasets = {"cells": [], "about": [{"train_length": 1, "shortest": 1, "longest": 2}]}
    spec: Spec = (
        chart.add_params(order)
        .properties(width="container", autosize=alt.AutoSizeParams(type="fit-x", contains="padding", resize=True))
        .properties(datasets=datasets)
        .configure_axis(**text, titleFontWeight="normal")
        .configure_legend(**text, **legend, columns=alt.expr("width < 520 ? 1 : 2"))
        .to_dict()
    )
    return spec


def heading(boards: Sequence[Board], entries: Iterable[str]) -> tuple[str, list[str]]:
    """The title of a figure, and the lines below it."""
    first, drawn = boards[0], set(entries)
    title = f"{SCALES[first.metric].name}, {'lower' if LOWER_IS_BETTER[first.metric] else 'higher'} is better"
    said = []
    if len(boards) == 1:
        title = f"{first.name}: {title}"
        said += [f"mean over {first.tasks} tasks"] if first.tasks > 1 else []
        said += [f"protocol {first.protocol}", f"task version {first.task_version}"]
    else:
        said += [f"protocol {first.protocol}"] if len({board.protocol for board in boards}) == 1 else []
        said.append("each panel has axes of its own")
    counts = {cell.n for board in boards for row in board.rows if row.entry in drawn for cell in row.cells}
    few, many = min(counts), max(counts)
    seeds = "1 seed" if many == 1 else f"{many} seeds" if few == many else f"{few} to {many} seeds"
    return title, wrap(", ".join(said), 66) + [f"{seeds}: mean and 95 % interval over seeds" if many > 1 else seeds]


def chosen(boards: Sequence[Board], named: Sequence[str]) -> tuple[list[str], list[str]]:
    """The entries to draw, and those that are left out for want of colours.

    Where none are named, all raw weights, in the order of their names; of many, the best of the first board.
    """
    known = list(dict.fromkeys(row.entry for board in boards for row in board.rows))
    if named:
        entries = list(dict.fromkeys(find_entry(name, known) for name in named))
        if len(entries) > DIFFERENT:
            raise UsageError(f"{len(entries)} entries are named, and a figure has looks for {DIFFERENT}")
        return entries, []
    raw = [entry for entry in known if "@" not in entry] or known
    return sorted(raw[:MOST]), raw[MOST:]


def known_format(path: Path) -> str:
    """The ending of a file that a figure can be written to. UsageError for any other."""
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise unknown("format", ending or path.name, FORMATS)
    return ending


def write(spec: Spec, path: Path) -> None:
    """Draw a specification in the format that the file's name says. A file that is there is replaced, by a whole one.

    Raises UsageError where the format is unknown or nothing can be written.
    """
    replace(path, FORMATS[known_format(path)](spec))


def _svg(spec: Spec) -> bytes:
    """With its size said in points; plain numbers would be pixels, which are smaller."""
    drawn = vl_convert.vegalite_to_svg(spec, VEGA_LITE)
    return re.sub(r'\b(width|height)="([\d.]+)"', r'\1="\2pt"', drawn, count=2).encode()


FORMATS: dict[str, Callable[[Spec], bytes]] = {
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, VEGA_LITE, ppi=DOTS_PER_INCH),
    ".svg": _svg,
    ".pdf": lambda spec: vl_convert.vegalite_to_pdf(spec, VEGA_LITE),
    ".json": lambda spec: json.dumps(spec, indent=1).encode() + b"\n",
}


def _cells(board: Board, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    fields = ("length", "mean", "low", "high", "n")
    return [
        {"entry": row.entry, "label": labels[row.entry]} | {field: getattr(cell, field) for field in fields}
        for row in board.rows
        if row.entry in labels
        for cell in row.cells
        if cell.kind == "length"
    ]


def _about(board: Board) -> list[dict[str, int]]:
    lengths = board.all_lengths
    return [{"train_length": board.train_length, "shortest": lengths[0], "longest": lengths[-1]}]


def _marked(lengths: Sequence[int]) -> list[int]:
    """Powers of two, and the longest.

    >>> _marked([16, 32, 40, 63])
    [16, 32, 63]
    """
    return [length for length in lengths if length & (length - 1) == 0 or length == lengths[-1]]


def told_apart(board: Board, boards: Sequence[Board]) -> list[str]:
    """Lines that tell a board from the others."""
    said = [board.name]
    said += [f"({board.tasks} tasks)"] if board.tasks > 1 else []
    said += [board.protocol] if len({other.protocol for other in boards}) > 1 else []
    same = [other for other in boards if (other.name, other.protocol) == (board.name, board.protocol)]
    said += [f"version {board.task_version}"] if len(same) > 1 else []
    return wrap(" ".join(said), 25)


def _panel_title(lines: Sequence[str]) -> alt.Chart:
    """A mark, since Vega's titles do not line up in a row."""
    mark: dict[str, Any] = {"text": list(lines), "align": "left", "fontWeight": "bold", "lineHeight": ROW}
    title: alt.Chart = alt.Chart(alt.InlineData(values=[{}])).mark_text(**mark)
    return title.encode(x=alt.value(0), y=alt.value(-6 - ROW * (len(lines) - 1)))


def _legend(labels: Sequence[str], styles: Styles) -> alt.LayerChart:
    """Vega's own legend knows no lines with points on them; and this one, as wide as the figure, makes the figure so."""
    letter = PAPER.text / 2  # about the width of one
    columns = max(1, min(len(labels), int(WIDTH // (SAMPLE + 10 + max(map(len, labels)) * letter))))
    rows, column = ceil(len(labels) / columns), WIDTH / columns
    room, height = column - SAMPLE - 8, rows * ROW + 2
    fitting = int(room / letter)
    places = [
        {
            "label": label,
            # The ends of names differ more often than their beginnings.
            "shown": label if len(label) <= fitting else f"…{label[-fitting:]}",
            "x": i // rows * column - LEFT,
            "y": i % rows * ROW + ROW / 2,
        }
        for i, label in enumerate(labels)
    ]
    names = alt.Chart(alt.InlineData(values=places)).encode(
        x=alt.X("x:Q", scale=None, axis=None), y=alt.Y("y:Q", scale=None, axis=None)
    )
    # Vega rounds the edges of what is drawn outwards to whole points.
    page = alt.Chart(alt.InlineData(values=[{}])).mark_rect(color="white", aria=False)
    line = names.mark_rule(strokeWidth=PAPER.line, xOffset=1, x2Offset=SAMPLE, aria=False)
    point = names.mark_point(filled=True, size=PAPER.symbol, opacity=1, xOffset=SAMPLE / 2, aria=False)
    text = names.mark_text(align="left", baseline="middle", dx=SAMPLE + 4, limit=room)
    marks = [
        page.encode(x=alt.value(1 - LEFT), x2=alt.value(WIDTH - LEFT - 1), y=alt.value(0), y2=alt.value(height)),
        line.encode(styles.color, styles.dash, x2="x:Q"),
        point.encode(styles.color, styles.shape),
        text.encode(text="shown:N", description="label:N"),
    ]
    return alt.LayerChart(layer=marks, width=WIDTH - LEFT - RIGHT, height=height)


def _on_paper(chart: alt.VConcatChart, title: str, subtitle: list[str]) -> Spec:
    text: dict[str, Any] = {"labelFontSize": PAPER.text, "titleFontSize": PAPER.text, "titleFontWeight": "normal"}
    text |= {"labelColor": INK, "titleColor": INK, "labelPadding": 2, "titlePadding": 3}
    lines: dict[str, Any] = {"domainWidth": 0.6, "tickWidth": 0.6, "gridWidth": 0.5, "tickSize": 3, "translate": 0}
    lines |= {"domainColor": GREY, "tickColor": GREY, "gridColor": GRID}
    spec: Spec = (
        chart.properties(
            title=alt.Title(title, subtitle=subtitle, anchor="start", frame="bounds", offset=6, limit=WIDTH),
            description=". ".join([title, *subtitle]),
            padding={"left": 0, "right": 0, "top": 2, "bottom": 2},
            background="white",
        )
        .configure(font="Helvetica, Arial, Liberation Sans, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(**text, **lines)
        .configure_text(fontSize=PAPER.text, color=INK)
        .configure_legend(disable=True)
        .configure_title(fontSize=PAPER.text + 1, subtitleFontSize=PAPER.text, subtitlePadding=2, color=INK, subtitleColor=INK)
        .to_dict()
    )
    return spec
