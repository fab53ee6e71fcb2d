"""Figures of curves against lengths, training steps or a setting; heatmaps of layers by lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import altair as alt

from lgbench.contracts import DIVERGED
from lgbench.errors import UsageError
from lgbench.reports.figure import LEFT, WIDTH, Spec, assembled, content, heading, on_paper, panel_title, seeds_line
from lgbench.reports.marks import LENGTH, SETTING_LABEL, STEP, TEXT, Across, Panel
from lgbench.results.boards import Board, BoardHeader, Cell, exponent
from lgbench.results.entries import short
from lgbench.results.leaderboard import Inside, Results
from lgbench.results.steps import BoardSteps, StepCurves
from lgbench.results.sweeps import OF_TRAINING, SettingValue, Sweep, ordered

WIDE = 8
"""Ratio of largest to smallest value above which the horizontal axis is logarithmic."""


class Part(NamedTuple):
    """Curves in one column of a board."""

    board: BoardHeader
    where: Sequence[str]
    """Column in words, such as "length 40, OOD"; empty for all lengths, and for a number of a training."""
    panel: Panel
    """Panel without the title."""


def figure(
    boards: Sequence[Board], entries: Mapping[str, int], loglog: bool = False, fit: bool = False, wide: bool = False
) -> Spec:
    """Figure of one board against lengths, or overview with a panel for each board.

    `entries` has a slot for each entry, as in :func:`lgbench.reports.marks.slots`, in the order of the legend. With `loglog`,
    both axes are logarithmic, and values at or below 0 are left out. With `fit`, the legend shows the exponent of a power law
    fitted to each entry on the first board. A `wide` figure is as wide as a page of two columns.
    """
    labels = dict(zip(entries, short(entries), strict=True))
    if fit:
        fitted = {row.entry: exponent(row) for row in boards[0].shown}
        labels = {entry: f"{label}  {found}" if (found := fitted.get(entry)) else label for entry, label in labels.items()}
    parts = [Part(board, [], _length_panel(board, labels, loglog)) for board in boards]
    return _figure(parts, labels, entries, boards[0].metric.headline, wide=wide)


def _length_panel(board: Board, labels: Mapping[str, str], loglog: bool) -> Panel:
    levels = {length: board.context_free_level("length", length) for length in board.all_lengths}
    cells: list[dict[str, Any]] = [
        _row(row.entry, labels, cell) | {"length": cell.length, "context_free": board.context_free_level("length", cell.length)}
        for row in board.shown
        if row.entry in labels
        for cell in row.cells
        if cell.kind == "length"
    ]
    return Panel(
        metric=board.metric,
        title=[],
        across=LENGTH,
        marked=marked(board.all_lengths, board.train_length),
        ends=(board.all_lengths[0], board.all_lengths[-1]),
        cells=above_zero(cells) if loglog else cells,
        context_free=_levels("length", levels, loglog),
        train_length=board.train_length,
        logarithmic=loglog,
    )


def _row(entry: str, labels: Mapping[str, str], cell: Cell) -> dict[str, Any]:
    own = {"mean": cell.mean, "low": cell.low, "high": cell.high, "n": cell.n}
    return {"entry": entry, "label": labels[entry]} | own


def _levels(field: str, levels: Mapping[Any, float | None], loglog: bool = False) -> list[dict[str, Any]]:
    """Rows of the context-free baseline, empty if unknown."""
    return [{field: place, "mean": level} for place, level in levels.items() if level is not None and (level > 0 or not loglog)]


def above_zero(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with means above 0, for a logarithmic axis, and `band`, the lower end of the drawn interval.

    The band of an interval that reaches 0 goes down to the smallest number of all rows.
    """
    positive = [cell for cell in cells if cell["mean"] > 0]
    least = min((end for cell in positive for end in (cell["mean"], cell["low"]) if end is not None and end > 0), default=0.0)
    return [cell | {"band": None if cell["low"] is None else max(cell["low"], least)} for cell in positive]


def marked(lengths: Sequence[int], trained: int) -> list[int]:
    """Lengths with a tick: all, except a training length too near another length. Shading shows the training length anyway.

    >>> marked([16, 32, 40, 63], 40), marked([16, 32, 63], 32)
    ([16, 32, 63], [16, 32, 63])
    """
    crowded = any(trained != length and 2 * trained < 3 * length < 4.5 * trained for length in lengths)
    return [length for length in lengths if length != trained or not crowded or length in (lengths[0], lengths[-1])]


def step_marks(steps: Sequence[int]) -> list[int]:
    """Steps with a tick: the last step, and every second step before.

    >>> step_marks([1, 3, 7, 15, 31, 62, 125, 250, 500, 1000])
    [3, 15, 62, 250, 1000]
    """
    return list(steps[::-1][::2][::-1])


def step_figure(found: Sequence[BoardSteps], entries: Mapping[str, int], wide: bool = False) -> Spec:
    """Figure with a panel for each board and length. `entries` and `wide` as in :func:`figure`."""
    labels = dict(zip(entries, short(entries), strict=True))
    parts = [
        Part(each.board, [_at_length(each.board, curves.length)], _step_panel(each.board, curves, labels))
        for each in found
        for curves in each.curves.values()
    ]
    metric = found[0].board.metric
    direction = f", {metric.direction}" if metric.ranks else ""
    return _figure(parts, labels, entries, f"{metric.label} while models train{direction}", wide=wide)


def _step_panel(board: BoardHeader, curves: StepCurves, labels: Mapping[str, str]) -> Panel:
    cells = [
        _row(entry, labels, cell) | {"step": cell.length, "context_free": curves.context_free}
        for entry, own in curves.cells.items()
        if entry in labels
        for cell in own
    ]
    ends = curves.steps[0], curves.steps[-1]
    levels = _levels("step", dict.fromkeys(ends, curves.context_free))
    return Panel(board.metric, [], STEP, step_marks(curves.steps), ends, cells, levels)


def sweep_figure(
    drawn: Sequence[Sweep], setting: str, entries: Mapping[str, int], loglog: bool = False, wide: bool = False
) -> Spec:
    """Figure with a panel for each sweep. `entries`, `loglog` and `wide` as in :func:`figure`."""
    labels = dict(zip(entries, short(entries), strict=True))
    values = ordered(value for sweep in drawn for entry in entries for value in sweep.cells.get(entry, ()))
    across = axis(setting, values, loglog)
    parts = [_sweep_part(sweep, labels, across, loglog) for sweep in drawn]
    metric = drawn[0].board.metric
    over = "on any of" if metric.name == DIVERGED else "mean over"
    return _figure(parts, labels, entries, metric.headline, over, wide)


def _sweep_part(sweep: Sweep, labels: Mapping[str, str], across: Across, loglog: bool) -> Part:
    def placed(value: SettingValue) -> SettingValue:
        return str(value) if across.categories else value

    cells: list[dict[str, Any]] = [
        _row(entry, labels, cell) | {"setting": placed(value), "context_free": sweep.context_free.get(value)}
        for entry, own in sweep.cells.items()
        if entry in labels
        for value, cell in own.items()
    ]
    levels = _levels("setting", {placed(value): level for value, level in sweep.context_free.items()}, loglog)
    kind, length = sweep.column
    where = f"{kind} mean" if length is None else _at_length(sweep.board, length)
    values = across.categories or ordered(row["setting"] for row in cells)
    ticks = [value for value in values if not isinstance(value, str)]
    cells = above_zero(cells) if loglog else cells
    panel = Panel(sweep.board.metric, [], across, ticks, (values[0], values[-1]), cells, levels, logarithmic=loglog)
    return Part(sweep.board, [] if sweep.column == OF_TRAINING else [where], panel)


def axis(setting: str, values: Sequence[SettingValue], loglog: bool = False) -> Across:
    """Horizontal axis of sorted values: categories, logarithmic (with `loglog` or a large ratio of numbers), or linear."""
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        if loglog:
            raise UsageError(f"--loglog draws numbers, and {setting} is {values[-1]!r} in some runs; leave --loglog out")
        return Across("setting", setting, SETTING_LABEL, categories=tuple(map(str, values)))
    if loglog and numbers[0] <= 0:
        raise UsageError(f"--loglog draws numbers above 0, and {setting} is {numbers[0]} in some runs; leave --loglog out")
    wide = numbers[0] > 0 and numbers[-1] > WIDE * numbers[0]
    return Across("setting", setting, SETTING_LABEL, "log" if wide or loglog else "linear")


def _figure(
    parts: Sequence[Part],
    labels: Mapping[str, str],
    entries: Mapping[str, int],
    title: str,
    over: str = "mean over",
    wide: bool = False,
) -> Spec:
    """Figure with a panel for each part. The vertical axes of a board's panels are equal, to compare the panels."""
    boards = list({id(part.board): part.board for part in parts}.values())
    columns = {tuple(part.where) for part in parts}
    panels = [
        replace(
            part.panel,
            title=[*(panel_title(part.board, boards) if len(boards) > 1 else []), *(part.where if len(columns) > 1 else [])],
            shown=_range(parts, part.board) if len(columns) > 1 else (),
        )
        for part in parts
    ]
    where = parts[0].where if len(columns) == 1 else []
    title, subtitle = heading(boards, title, where, shared=len(columns) > 1, over=over)
    seeds = seeds_line({row["n"] for part in parts for row in part.panel.cells})
    return assembled(panels, {label: entries[entry] for entry, label in labels.items()}, title, [*subtitle, seeds], wide)


def _at_length(board: BoardHeader, length: int) -> str:
    """Length, with ID or OOD relative to the training length, such as "length 40, OOD"."""
    trained = board.train_length
    return f"length {length}" + (f", {'ID' if length <= trained else 'OOD'}" if trained else "")


def _range(parts: Sequence[Part], board: BoardHeader) -> list[float]:
    """Smallest and largest number of curves and intervals of a board."""
    rows = [row for part in parts if part.board is board for row in part.panel.cells]
    values = [row[end] for row in rows for end in ("mean", "low", "high", "context_free") if row[end] is not None]
    return [min(values), max(values)] if values else []


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
