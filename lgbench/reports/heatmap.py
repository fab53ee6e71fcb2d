"""Heatmaps of layers by lengths: a panel for each entry, with a common colour scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from lgbench.errors import UsageError
from lgbench.reports.figure import LEFT, WIDTH, Spec, heading, on_paper
from lgbench.reports.marks import PAPER
from lgbench.results.boards import Board
from lgbench.results.entries import short
from lgbench.results.leaderboard import Inside, Results

ROW = 14
"""Height of a layer, in points."""
LEGEND = 46
"""Width of the colour scale with labels, in points."""


def layer_maps(results: Results, board: Board, entries: Sequence[str], head: int | None) -> dict[str, list[dict[str, Any]]]:
    """Rows of layer, length and mean by entry, from the boards of a probe. Raises UsageError for a probe without layers."""
    metric = board.metric.name
    layers = results.layers(metric)
    if not layers:
        raise UsageError(f"{metric} is of whole models, which have no layers; leave out --heatmap")
    found: dict[str, list[dict[str, Any]]] = {}
    for layer in layers:
        for other in results.boards(metric, board.name, str(board.protocol), inside=Inside(layer, head)):
            if (other.task_version, other.metric) != (board.task_version, board.metric):
                continue
            for row in other.rows:
                if row.entry in entries:
                    cells = ({"layer": layer, "length": c.length, "mean": c.mean} for c in row.cells if c.kind == "length")
                    found.setdefault(row.entry, []).extend(cells)
    return {entry: found[entry] for entry in entries if entry in found}


def heatmap(board: Board, maps: Mapping[str, Sequence[Mapping[str, Any]]]) -> Spec:
    """Figure with a panel for each entry, from top to bottom."""
    labels = short(list(maps))
    means = [row["mean"] for rows in maps.values() for row in rows]
    scale = alt.Scale(scheme="viridis", domain=[min(means), max(means)])
    panels = [_panel(board, label, rows, scale, label == labels[-1]) for label, rows in zip(labels, maps.values(), strict=True)]
    spec: Spec = alt.vconcat(*panels, spacing=8).to_dict()
    title, (*subtitle, _) = heading([board], maps)  # the last line is about intervals, which a heatmap does not show
    content = {key: value for key, value in spec.items() if key not in ("$schema", "config")}
    return on_paper(title, [*subtitle, "mean over seeds"]) | content


def _panel(board: Board, label: str, rows: Sequence[Mapping[str, Any]], scale: alt.Scale, last: bool) -> alt.Chart:
    layers = len({row["layer"] for row in rows})
    sizes: dict[str, Any] = {"labelFontSize": PAPER.text, "titleFontSize": PAPER.text, "titleFontWeight": "normal"}
    legend = alt.Legend(title=board.metric.label, gradientLength=60, gradientThickness=8, offset=6, format="~g", **sizes)
    color = alt.Color("mean:Q", scale=scale, legend=legend)
    panel: alt.Chart = (
        alt.Chart(alt.InlineData(values=list(rows)), title=alt.TitleParams(label, anchor="start", fontSize=PAPER.text))
        .mark_rect()
        .encode(
            alt.X("length:O", title="length" if last else None, axis=alt.Axis(labelAngle=0, labelOverlap="parity")),
            alt.Y("layer:O", title="layer", sort="descending"),
            color,
        )
        .properties(width=WIDTH - LEFT - LEGEND, height=ROW * layers)
    )
    return panel
