"""Readings of probes on one model: a number for each length, layer and head; as a table, a file of rows, or a figure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console

from lgbench.errors import UsageError
from lgbench.reports.tables import Column, Table, show, spread
from lgbench.results.columns import mean_of_known
from lgbench.results.metrics import Metric
from lgbench.results.statistics import Exponent, interval, mean_exponent

MAX_LAYERS = 8
"""So many curves a figure has: the layers from the first to the last, as evenly spread as they can be."""


class ProbeRow(NamedTuple):
    """One number: the mean over `n` contexts, None where the probe is not defined."""

    metric: str
    length: int
    layer: int | None
    """Counted from 1; None for a number of the whole model."""
    head: int | None
    """Counted from 1; None for a number of the whole layer."""
    value: float | None
    n: int


class Mean(NamedTuple):
    """The mean over the heads of a layer, and its 95 % interval, which is None where there is one number only."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class ModelRows:
    """All rows of one model, and what they are of."""

    model: str
    contexts_of: str
    """The source of the contexts: random tokens, or the name of a file."""
    contexts: int
    """Of each length."""
    seed: int
    dtype: str
    metrics: tuple[Metric, ...]
    rows: tuple[ProbeRow, ...]

    @property
    def lengths(self) -> list[int]:
        return sorted({row.length for row in self.rows})

    @property
    def layers(self) -> list[int | None]:
        """The layers that were read, in order; None, for the whole model, comes last."""
        return sorted({row.layer for row in self.rows}, key=lambda layer: (layer is None, layer or 0))

    def mean(self, metric: str, length: int, layer: int | None) -> Mean | None:
        """Over the heads of a layer; None where the probe has no value there."""
        known = np.array([row.value for row in self._at(metric, layer) if row.length == length and row.value is not None])
        if not known.size:
            return None
        low, high = (end.item() for end in interval(known[None]))
        several = known.size > 1
        return Mean(mean_of_known(known).item(), low if several else None, high if several else None, known.size)

    def exponent(self, metric: str, layer: int | None) -> Exponent | None:
        """Of the length, with its interval over the heads of a layer; None where a power law cannot be fitted to any head."""
        own = self._at(metric, layer)
        heads = sorted({row.head or 0 for row in own})
        lengths = sorted({row.length for row in own})
        values = np.full((len(lengths), len(heads)), np.nan)
        for row in own:
            if row.value is not None:
                values[lengths.index(row.length), heads.index(row.head or 0)] = row.value
        return mean_exponent(np.array(lengths, dtype=np.float64), values) if len(lengths) > 1 else None

    def _at(self, metric: str, layer: int | None) -> list[ProbeRow]:
        return self._by_place.get((metric, layer), [])

    @cached_property
    def _by_place(self) -> dict[tuple[str, int | None], list[ProbeRow]]:
        """The rows by probe and layer, since tables and figures ask for every one of them."""
        found: dict[tuple[str, int | None], list[ProbeRow]] = defaultdict(list)
        for row in self.rows:
            found[row.metric, row.layer].append(row)
        return found


def table(found: ModelRows, console: Console) -> None:
    """A table for each length: a line for each layer, with the mean over its heads."""
    columns = [Column("layer"), *(Column(metric.label) for metric in found.metrics)]
    for length in found.lengths:
        rows = []
        for layer in found.layers:
            means = [found.mean(metric.name, length, layer) for metric in found.metrics]
            rows.append([_layer(layer), *("-" if mean is None else f"{mean.value:.4g}" for mean in means)])
        show(Table(f"length {length}", columns, rows), console)


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
    layers = [found.layers[place] for place in spread(range(len(found.layers)), min(len(found.layers), MAX_LAYERS))]
    labels = {layer: _layer(layer) if layer is None else f"layer {layer}" for layer in layers}
    panels = [_panel(found, metric, labels) for metric in drawn]
    if len(panels) == 1:
        fits = {layer: found.exponent(drawn[0].name, layer) for layer in layers}
        texts = [f"{labels[layer]}  {fits[layer]}" if fits[layer] else labels[layer] for layer in layers]
        labels = dict(zip(layers, texts, strict=True))
        panels = [_panel(found, drawn[0], labels)]
    said = f"{found.contexts} contexts of {found.contexts_of} for each length, {found.dtype}, seed {found.seed}"
    title = f"{Path(found.model).name}: {drawn[0].headline if len(panels) == 1 else 'probes by length'}"
    return assembled(
        panels,
        {label: slot for slot, label in enumerate(labels.values())},
        title,
        [*wrap(said, LINE), "mean and 95 % interval over heads"],
    )


def _panel(found: ModelRows, metric: Metric, labels: dict[int | None, str]) -> Any:
    from lgbench.reports.marks import LENGTH, Panel
    from lgbench.reports.panel_figures import above_zero

    cells: list[dict[str, Any]] = [
        {"entry": label, "label": label, "length": length, "context_free": None}
        | {"mean": mean.value, "low": mean.low, "high": mean.high, "n": mean.n}
        for layer, label in labels.items()
        for length in found.lengths
        if (mean := found.mean(metric.name, length, layer))
    ]
    logarithmic = all(cell["mean"] > 0 for cell in cells)
    return Panel(
        metric=metric,
        title=[metric.label],
        across=LENGTH,
        marked=found.lengths,
        ends=(found.lengths[0], found.lengths[-1]),
        cells=above_zero(cells) if logarithmic else cells,
        context_free=[],
        logarithmic=logarithmic,
    )


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
