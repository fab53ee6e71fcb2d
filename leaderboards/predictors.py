"""How well each probe goes with OOD TVD: the picture of inside/README.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from textwrap import wrap
from typing import Any

import altair as alt

from lgbench.reports.figure import LETTER, Spec, content, on_paper
from lgbench.reports.marks import TEXT
from lgbench.results.metrics import Metric
from lgbench.results.predictors import TIMES, Predictor

PANEL, BETWEEN, LABELS, ROW = 92, 8, 86, 12
"""Panel width, space between panels, width of probe names (in wide fonts, too), and line height, in points."""

BOLD_LETTER = 1.3 * LETTER
"""Approximate width of a letter of the title."""


def picture(found: Sequence[Predictor], metric: Metric) -> Spec:
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
    said = f"over entries and seeds, probes read at up to {TIMES} times the training length; "
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
