"""Readings of probes on the model of a run: a table of layers by lengths, or a file of all rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import isfinite
from statistics import fmean

import pyarrow as pa
import pyarrow.csv
from rich import box
from rich.console import Console
from rich.table import Table

from lgbench.reports.widths import fits

COLUMNS = ("run_id", "entry", "task", "seed", "weights", "metric", "step", "length", "layer", "head", "value", "n")
"""Of a file."""

_Line = tuple[str, int | None]
"""A probe and a layer."""


def table(rows: pa.Table, weights: str, console: Console) -> None:
    """A line for each probe and layer, the mean over its heads; as many lengths as fit, the longest among them."""
    values: dict[tuple[_Line, int], list[float]] = defaultdict(list)
    for row in rows.to_pylist():
        if row["weights"] == weights:
            found = values[(row["metric"], row["layer"]), row["length"]]
            found += [row["value"]] if row["value"] is not None and isfinite(row["value"]) else []
    means = {place: fmean(found) if found else None for place, found in values.items()}
    lengths = sorted({length for _, length in means})
    lines = list(dict.fromkeys(line for line, _ in means))
    shown = next(
        (fit for count in range(len(lengths), 0, -1) if fits(_lines(lines, fit := lengths[-count:], means), console)),
        lengths[-1:],
    )
    console.print(_lines(lines, shown, means), highlight=False)
    if len(shown) < len(lengths):
        console.print("some lengths do not fit; a wider terminal or --out shows them all", style="dim")


def _lines(lines: Sequence[_Line], lengths: Sequence[int], means: dict[tuple[_Line, int], float | None]) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("probe")
    for name in ("layer", *map(str, lengths)):
        found.add_column(name, justify="right")
    for name, layer in lines:
        cells = [means.get(((name, layer), length)) for length in lengths]
        found.add_row(name, "" if layer is None else str(layer), *("-" if cell is None else f"{cell:.4g}" for cell in cells))
    return found


def chosen(rows: pa.Table) -> pa.Table:
    """The columns of a file."""
    return rows.select(COLUMNS)
