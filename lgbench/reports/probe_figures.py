"""Figures of probes: heatmaps of layers by lengths, and correlations between probes and a score by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import wrap
from typing import Any

import altair as alt

from lgbench.errors import UsageError
from lgbench.reports.figure import LEFT, LETTER, WIDTH, Spec, content, heading, on_paper
from lgbench.reports.marks import TEXT
from lgbench.results.boards import Board
from lgbench.results.entries import short
from lgbench.results.leaderboard import Inside, Results
from lgbench.results.metrics import Metric
from lgbench.results.predictors import Predictor

LAYER_HEIGHT = 14
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
    panels = [
        _layer_panel(board, label, rows, scale, label == labels[-1]) for label, rows in zip(labels, maps.values(), strict=True)
    ]
    spec: Spec = alt.vconcat(*panels, spacing=8).to_dict()
    title, subtitle = heading([board], board.metric.headline)
    return on_paper(title, [*subtitle, "mean over seeds"]) | content(spec)


def _layer_panel(board: Board, label: str, rows: Sequence[Mapping[str, Any]], scale: alt.Scale, last: bool) -> alt.Chart:
    layers = len({row["layer"] for row in rows})
    sizes: dict[str, Any] = {"labelFontSize": TEXT, "titleFontSize": TEXT, "titleFontWeight": "normal"}
    legend = alt.Legend(title=board.metric.label, gradientLength=60, gradientThickness=8, offset=6, format="~g", **sizes)
    color = alt.Color("mean:Q", scale=scale, legend=legend)
    panel: alt.Chart = (
        alt.Chart(alt.InlineData(values=list(rows)), title=alt.TitleParams(label, anchor="start", fontSize=TEXT))
        .mark_rect()
        .encode(
            alt.X("length:O", title="length" if last else None, axis=alt.Axis(labelAngle=0, labelOverlap="parity")),
            alt.Y("layer:O", title="layer", sort="descending"),
            color,
        )
        .properties(width=WIDTH - LEFT - LEGEND, height=LAYER_HEIGHT * layers)
    )
    return panel


PANEL, BETWEEN, LABELS, ROW = 92, 8, 86, 12
"""Panel width, space between panels, width of probe names (in wide fonts, too), and line height, in points."""

BOLD_LETTER = 1.3 * LETTER
"""Approximate width of a letter of the title."""


def predictor_figure(found: Sequence[Predictor], metric: Metric, times: int) -> Spec:
    """Figure with families side by side under one protocol. Probes are sorted by mean absolute correlation over families."""
    strength: dict[str, list[float]] = {each.probe: [] for each in found}
    for each in found:
        if each.low is not None:  # a correlation over few entries says little
            strength[each.probe].append(abs(each.correlation))
    order = sorted(strength, key=lambda probe: (-fmean(strength[probe] or [0.0]), probe))
    families = sorted({each.family for each in found})
    panels = [
        _family_panel([each for each in found if each.family == name], name, order, name == families[0]) for name in families
    ]
    spec: Spec = alt.hconcat(*panels, spacing=BETWEEN).to_dict()
    title = f"Rank correlation of probes with {metric.label} beyond the training range, {found[0].protocol}"
    said = f"over entries and seeds, probes read at up to {times} times the training length; "
    said += "lines are 95 % intervals over entries"
    width = LABELS + len(families) * (PANEL + BETWEEN)
    page = on_paper(title, wrap(said, int(width / LETTER)))
    page["title"] |= {"text": wrap(title, int(width / BOLD_LETTER)), "limit": width}
    return page | content(spec)


def _family_panel(found: Sequence[Predictor], family: str, order: Sequence[str], first: bool) -> alt.LayerChart:
    rows: list[dict[str, Any]] = [
        {"probe": each.probe, "value": each.correlation, "low": each.low, "high": each.high} for each in found
    ]
    names = alt.Axis(
        labels=first, ticks=False, domain=False, grid=True, labelFontSize=TEXT, labelLimit=0, minExtent=LABELS if first else 0
    )
    y = alt.Y("probe:N", sort=list(order), scale=alt.Scale(domain=list(order)), axis=names, title=None)
    chart = alt.Chart(alt.InlineData(values=rows)).encode(y=y)
    scale = alt.Scale(domain=[-1, 1])
    axis = alt.Axis(values=[-1, -0.5, 0, 0.5, 1], format="~g", labelFontSize=TEXT)
    x = alt.X("value:Q", scale=scale, axis=axis, title=None)
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(color="#999").encode(x=alt.X("zero:Q", scale=scale))
    lines = chart.mark_rule(strokeWidth=1).encode(x=alt.X("low:Q", scale=scale, axis=axis, title=None), x2="high:Q")
    points = chart.mark_point(filled=True, size=18, opacity=1).encode(x=x)
    size: dict[str, Any] = {"width": PANEL, "height": ROW * len(order)}
    return alt.LayerChart(layer=[zero, lines, points], title=alt.TitleParams(family, fontSize=TEXT, anchor="middle"), **size)
