"""Layout of figures for a paper, as wide as a column or a page: panels, legend, titles.

The layout is in points: a text height of 7 is 7 points on paper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from textwrap import wrap
from typing import Any

import altair as alt

from lgbench.reports.marks import ALONE, CONTEXT_FREE_DASH, GREY, LABELS, SMALL, TEXT, Panel, Styles, layers
from lgbench.results.boards import BoardHeader
from lgbench.terminal import counted

Spec = dict[str, Any]

INK = "#222222"
GRID = "#E4E4E4"

# Layout in points. Every width is fixed here, because Vega would make a figure as wide as its text.
WIDTH = 237
"""Width of a figure: 3.3 inches, a column of a paper, in whole points, the unit of Vega."""
PAGE = 487
"""Width of a wide figure: 6.75 inches, a page of two columns."""
LEFT = 32
"""Space left of the first column of panels, for labels and title of the vertical axis."""
RIGHT = 10
"""Half the width of the last length's label."""
BETWEEN = RIGHT + LABELS + 6
ROW = 10
"""Line height of text."""
SAMPLE = 24
"""Width of a sample line in the legend."""
LETTER = TEXT / 2
"""Approximate width of a letter."""
LINE = 66
"""Maximum letters in a line of the subtitle."""
TITLE = 21
"""Maximum letters in a line of a panel's title. Titles are bold, and the last column of panels ends at the figure's edge."""
DASHED = "context-free baseline"
"""Name of the dashed curve in a legend."""


def assembled(panels: Sequence[Panel], labels: Mapping[str, int], title: str, subtitle: list[str], wide: bool = False) -> Spec:
    """Figure of panels with a legend, as wide as a column of a paper, or as a page. `labels` has a slot for each label, in the
    order of the legend.

    Altair makes the parts and plain dictionaries join them, because Altair would copy the whole figure at every step.
    """
    styles, width = Styles(labels), PAGE if wide else WIDTH
    columns = _columns(len(panels), 4 if wide else 2)
    datasets: dict[str, Any] = {}
    for place, panel in enumerate(panels):
        datasets |= zip(_datasets(place), (panel.cells, panel.context_free), strict=True)
    parts = [_part(_panel(panels, place, columns, width, styles), datasets) for place in range(len(panels))]
    legend = _part(_legend(list(labels), styles, width, any(panel.context_free for panel in panels)), datasets)
    row = 30 + ROW * (max(len(panel.title) for panel in panels) - 1)
    # With "flush" bounds, the space between panels is exact: axis labels do not move panels.
    grid = {"concat": parts, "columns": columns, "bounds": "flush", "spacing": {"row": row, "column": BETWEEN}}
    return on_paper(title, subtitle, width) | {"vconcat": [grid, legend], "spacing": 6, "datasets": datasets}


def _part(chart: alt.LayerChart, datasets: dict[str, Any]) -> Spec:
    """Specification of a part of the figure. Datasets of the part move into `datasets`."""
    spec: Spec = chart.to_dict()
    datasets |= spec.pop("datasets", {})
    return content(spec)


def content(spec: Spec) -> Spec:
    """Specification of a chart without schema and style."""
    return {key: value for key, value in spec.items() if key not in ("$schema", "config")}


def _datasets(place: int) -> tuple[str, str]:
    """Names of the datasets of a panel."""
    return f"cells {place}", f"context_free {place}"


def _columns(panels: int, most: int) -> int:
    """Panels in a row, in rows as even as possible.

    >>> [_columns(panels, 2) for panels in (1, 5)], [_columns(panels, 4) for panels in (1, 3, 5, 7)]
    ([1, 2], [1, 3, 3, 4])
    """
    return ceil(panels / ceil(panels / most))


def _panel(panels: Sequence[Panel], place: int, columns: int, width: int, styles: Styles) -> alt.LayerChart:
    """Panel at an index of a figure. A single panel is higher and has no title."""
    panel = panels[place]
    alone = len(panels) == 1
    height = 125 if alone else 64
    across = (width - LEFT - RIGHT - (columns - 1) * BETWEEN) / columns
    x_title = panel.across.title if place >= len(panels) - columns else None
    x = panel.across.encoded(panel.marked, panel.ends, x_title, across)
    room = alone and len(panel.metric.title) * LETTER <= height
    y_title = panel.metric.title if room else None if place % columns else panel.metric.label
    curves = layers(panel, _datasets(place), ALONE if alone else SMALL, x, y_title, styles)
    titles = [] if alone else [_title_mark(panel.title)]
    return alt.LayerChart(layer=[*curves, *titles], width=across, height=height)


def heading(
    boards: Sequence[BoardHeader], title: str, where: Sequence[str] = (), shared: bool = False, over: str = "mean over"
) -> tuple[str, list[str]]:
    """Title of a figure with the name of a single board, and lines of the subtitle before the seeds.

    `where` is a column that all panels show. `shared`: the panels of each board have equal axes.
    """
    first, said = boards[0], [*where]
    if len(boards) == 1:
        title = f"{first.title}: {title}"
        said += [f"{over} {first.tasks} tasks"] if first.tasks > 1 else []
        said += [f"protocol {first.protocol}", f"task version {first.task_version}"]
    else:
        said += [f"protocol {first.protocol}"] if len({board.protocol for board in boards}) == 1 else []
        said.append("the panels of each board share an axis" if shared else "each panel has axes of its own")
    return title, wrap(", ".join(said), LINE)


def seeds_line(counts: Collection[int]) -> str:
    """Subtitle line with the number of seeds in each mean."""
    few, many = min(counts, default=0), max(counts, default=0)
    seeds = counted(many, "seed") if few == many else f"{few} to {many} seeds"
    return f"{seeds}: mean and 95 % interval over seeds" if many > 1 else seeds


def panel_title(board: BoardHeader, boards: Sequence[BoardHeader]) -> list[str]:
    """Lines of a panel's title: the board's name and number of tasks, then protocol and versions where boards differ."""
    said = [board.title]
    said += [f"({board.tasks} tasks)"] if board.tasks > 1 else []
    said += [str(board.protocol)] if len({other.protocol for other in boards}) > 1 else []
    same = [other for other in boards if (other.name, other.protocol) == (board.name, board.protocol)]
    said += [f"version {board.task_version}"] if len({other.task_version for other in same}) > 1 else []
    said += [f"{board.metric.label} version {board.metric.version}"] if len({other.metric for other in same}) > 1 else []
    # A setting too long for a line is broken after the equals sign, not in the middle of a number.
    words = (word if len(word) <= TITLE else word.replace("=", "= ") for word in " ".join(said).split())
    return wrap(" ".join(words), TITLE)


def _title_mark(lines: Sequence[str]) -> alt.Chart:
    """Panel title as a text mark, because Vega does not align titles across a row of panels."""
    mark: dict[str, Any] = {"text": list(lines), "align": "left", "fontWeight": "bold", "lineHeight": ROW}
    title: alt.Chart = alt.Chart(alt.InlineData(values=[{}])).mark_text(**mark)
    return title.encode(x=alt.value(0), y=alt.value(-6 - ROW * (len(lines) - 1)))


def _legend(labels: Sequence[str], styles: Styles, width: int, with_context_free: bool) -> alt.LayerChart:
    """Legend made of marks, because Vega's own legend cannot put points on lines.

    The legend is as wide as the figure and so fixes the width of the figure.
    """
    texts = [*labels, *([DASHED] if with_context_free else [])]
    columns = max(1, min(len(texts), int(width // (SAMPLE + 10 + max(map(len, texts)) * LETTER))))
    rows, column = ceil(len(texts) / columns), width / columns
    room, height = column - SAMPLE - 8, rows * ROW + 2
    letters = int(1.1 * room / LETTER)  # most names have narrower letters, and Vega cuts the others
    places = [
        {
            "label": text,
            "shown": text if len(text) <= letters else f"…{text[-letters:]}",  # names differ more often at the end
            "x": i // rows * column - LEFT,
            "y": (i % rows + 0.5) * ROW,
        }
        for i, text in enumerate(texts)
    ]
    page = alt.Chart(alt.InlineData(values=[{}])).mark_rect(color="white", aria=False)
    # Vega rounds the edges of drawings outwards to whole points, hence 1 point less at both ends.
    ground = page.encode(x=alt.value(1 - LEFT), x2=alt.value(width - LEFT - 1), y=alt.value(0), y2=alt.value(height))
    line: dict[str, Any] = {"strokeWidth": ALONE.line, "xOffset": 1, "x2Offset": SAMPLE, "aria": False}
    entries, everything = _at(places[: len(labels)]), _at(places)
    point = entries.mark_point(filled=True, size=ALONE.symbol, opacity=1, xOffset=SAMPLE / 2, aria=False)
    text = everything.mark_text(align="left", baseline="middle", dx=SAMPLE + 4, limit=room)
    dashed = _at(places[len(labels) :]).mark_rule(strokeDash=list(CONTEXT_FREE_DASH), color=GREY, **line)
    marks = [
        ground,
        entries.mark_rule(**line).encode(styles.color, styles.dash, x2="x:Q"),
        point.encode(styles.color, styles.shape),
        *([dashed.encode(x2="x:Q")] if with_context_free else []),
        text.encode(text="shown:N", description="label:N"),
    ]
    return alt.LayerChart(layer=marks, width=width - LEFT - RIGHT, height=height)


def _at(places: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """Chart with marks at the fields x and y, in points."""
    chart: alt.Chart = alt.Chart(alt.InlineData(values=list(places))).encode(
        x=alt.X("x:Q", scale=None, axis=None), y=alt.Y("y:Q", scale=None, axis=None)
    )
    return chart


def on_paper(title: str, subtitle: list[str], width: int = WIDTH) -> Spec:
    """Specification of a figure without content: title, subtitle and style."""
    text: Spec = {"labelFontSize": TEXT, "titleFontSize": TEXT, "titleFontWeight": "normal"}
    text |= {"labelColor": INK, "titleColor": INK, "labelPadding": 2, "titlePadding": 3}
    lines: Spec = {"domainWidth": 0.6, "tickWidth": 0.6, "gridWidth": 0.5, "tickSize": 3, "translate": 0}
    lines |= {"domainColor": GREY, "tickColor": GREY, "gridColor": GRID}
    titles: Spec = {"fontSize": TEXT + 1, "subtitleFontSize": TEXT, "subtitlePadding": 2}
    return {
        "$schema": alt.SCHEMA_URL,
        "title": {"text": title, "subtitle": subtitle, "anchor": "start", "frame": "bounds", "offset": 6, "limit": width},
        "description": ". ".join([title, *subtitle]),
        "padding": {"left": 0, "right": 0, "top": 2, "bottom": 2},
        "background": "white",
        "config": {
            "font": "Helvetica, Arial, Liberation Sans, sans-serif",
            "view": {"stroke": None},
            "axis": text | lines,
            "text": {"fontSize": TEXT, "color": INK},
            "legend": {"disable": True},
            "title": titles | {"color": INK, "subtitleColor": INK},
        },
    }
