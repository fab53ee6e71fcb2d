"""Readings of probes on one model: a table for each length, a file of rows, and a figure of its layers."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

import pyarrow as pa
import pyarrow.csv
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lgbench.errors import UsageError
from lgbench.results.metrics import Metric
from lgbench.results.probe_rows import ModelRows

MAX_LAYERS = 8
"""So many curves a figure has: the layers from the first to the last, as evenly spread as they can be."""


def table(found: ModelRows, console: Console) -> None:
    """A table for each length: a line for each layer, with the mean over its heads."""
    for length in found.lengths:
        lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for name in ("layer", *(metric.label for metric in found.metrics)):
            lines.add_column(escape(name.replace(" ", "\n")), justify="right")
        for layer in found.layers:
            means = [found.mean(metric.name, length, layer) for metric in found.metrics]
            lines.add_row(_layer(layer), *("-" if mean is None else f"{mean.value:.4g}" for mean in means))
        console.print(f"length {length}", style="bold", highlight=False)
        console.print(lines)


def figure(found: ModelRows) -> dict[str, Any]:
    """A panel for each probe, with a curve for each layer: the mean over its heads, and the 95 % interval over them.

    Axes are logarithmic where all values are above 0. Where there is one probe, the legend has the exponents of the length.
    """
    from lgbench.reports.figure import LINE, assembled

    drawn = [
        metric for metric in found.metrics if any(row.metric == metric.name and row.value is not None for row in found.rows)
    ]
    if not drawn:
        raise UsageError("no probe has a value here, so there is nothing to draw; use more --contexts")
    layers = _spread(found)
    labels = {layer: _layer(layer) if layer is None else f"layer {layer}" for layer in layers}
    panels = [_panel(found, metric, labels) for metric in drawn]
    if len(panels) == 1:
        fits = {layer: found.exponent(drawn[0].name, layer) for layer in layers}
        texts = [f"{labels[layer]}  {fits[layer]}" if fits[layer] else labels[layer] for layer in layers]
        labels = dict(zip(layers, texts, strict=True))
        panels = [_panel(found, drawn[0], labels)]
    said = f"{found.contexts} contexts of {found.contexts_of} for each length, {found.dtype}, seed {found.seed}"
    title = f"{Path(found.model).name}: {drawn[0].headline if len(panels) == 1 else 'probes by length'}"
    return assembled(panels, list(labels.values()), title, [*wrap(said, LINE), "mean and 95 % interval over heads"])


def _panel(found: ModelRows, metric: Metric, labels: dict[int | None, str]) -> Any:
    from lgbench.reports.across import LENGTH
    from lgbench.reports.curve_data import above_zero
    from lgbench.reports.figure import Panel

    cells: list[dict[str, Any]] = [
        {"entry": label, "label": label, "length": length, "chance": None}
        | {"mean": mean.value, "low": mean.low, "high": mean.high, "n": mean.n}
        for layer, label in labels.items()
        for length in found.lengths
        if (mean := found.mean(metric.name, length, layer))
    ]
    logarithmic = all(cell["mean"] > 0 for cell in cells)
    lengths = found.lengths
    ends = {"train_length": 0, "shortest": lengths[0], "longest": lengths[-1]}
    return Panel(
        metric=metric,
        title=[metric.label],
        across=LENGTH,
        marked=lengths,
        cells=above_zero(cells) if logarithmic else cells,
        chance=[],
        about=[{**ends, "lengths": lengths}],
        logarithmic=logarithmic,
    )


def _spread(found: ModelRows) -> list[int | None]:
    layers = found.layers
    last, count = len(layers) - 1, min(len(layers), MAX_LAYERS)
    return [layers[round(i * last / max(1, count - 1))] for i in range(count)]


def _layer(layer: int | None) -> str:
    return "model" if layer is None else str(layer)


def arrow(found: ModelRows) -> pa.Table:
    versions = {metric.name: metric.version for metric in found.metrics}
    about = {
        "model": pa.string(),
        "contexts_of": pa.string(),
        "contexts": pa.int64(),
        "seed": pa.int64(),
        "dtype": pa.string(),
    }
    rows = found.rows
    columns = {name: pa.array([getattr(found, name)] * len(rows), kind) for name, kind in about.items()}
    columns |= {
        "metric": pa.array([row.metric for row in rows], pa.string()),
        "metric_version": pa.array([versions[row.metric] for row in rows], pa.int64()),
        "length": pa.array([row.length for row in rows], pa.int64()),
        "layer": pa.array([row.layer for row in rows], pa.int64()),
        "head": pa.array([row.head for row in rows], pa.int64()),
        "value": pa.array([row.value for row in rows], pa.float64()),
        "n": pa.array([row.n for row in rows], pa.int64()),
    }
    return pa.table(columns)
