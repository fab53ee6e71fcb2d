"""Comparisons, correlations of probes with scores, readings of probes, and answers of SQL, as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import isfinite
from statistics import fmean
from typing import Any

import pyarrow as pa

from lgbench.reports.tables import Cell, Column, Styled, Table
from lgbench.results.compare import Comparison
from lgbench.results.entries import short
from lgbench.results.metrics import Metric
from lgbench.results.predictors import Predictor
from lgbench.results.statistics import MIN_PAIRED_SEEDS
from lgbench.terminal import counted

PROBE_COLUMNS = ("run_id", "entry", "task", "seed", "weights", "metric", "step", "length", "layer", "head", "value", "n")
"""Columns of a file of probe readings."""


def comparison_table(comparison: Comparison) -> Table:
    """Difference between two entries at every length and in the mean over lengths. A star marks a significant difference."""
    names = ("length", *short((comparison.first, comparison.second)), "difference", "95 % interval", "seeds", "p")
    rows: list[list[Cell]] = []
    for own in (*comparison.lengths, comparison.mean):
        name = own.kind if own.length is None else str(own.length)
        ends = "-" if own.low is None else f"{own.low:+.4f} {own.high:+.4f}"
        values = (f"{own.first:.4f}", f"{own.second:.4f}", f"{own.difference:+.4f}")
        p = "-" if own.n < MIN_PAIRED_SEEDS else f"{own.p:.2g}{' *' if own.significant else ''}"
        rows.append([name, *values, ends, str(own.n), p])
    columns = [Column(name, group=int(name == "seeds")) for name in names]
    lengths, mean = len(comparison.lengths), comparison.mean.kind
    note = f"p is corrected (Holm) for the {lengths} lengths, in the row {mean} for all boards; intervals are not."
    return Table(comparison.verdict, columns, rows, [note])


def predictor_tables(found: Sequence[Predictor], metric: Metric) -> Iterator[Table]:
    """Table for each protocol: rank correlation of each probe with the score, by family. The strongest in a family is bold."""
    for protocol in dict.fromkeys(str(each.protocol) for each in found):
        own = [each for each in found if str(each.protocol) == protocol]
        families = {name: [each for each in own if each.family == name] for name in sorted({each.family for each in own})}
        entries = [f"{name}, {_range('entry', [each.entries for each in of])}" for name, of in families.items()]
        columns = [Column(f"{protocol}: rank correlation with OOD {metric.label}", text=True), *map(Column, entries)]
        cells = {(each.probe, each.family): _correlation(each, each is of[0]) for of in families.values() for each in of}
        probes = sorted({each.probe for each in own})
        rows = [[probe, *(cells.get((probe, family), "-") for family in families)] for probe in probes]
        notes = [f"{name}: {_range('model', [each.models for each in of])} on a task" for name, of in families.items()]
        yield Table("", columns, rows, notes)


def _correlation(own: Predictor, strongest: bool) -> Styled:
    ends = "" if own.low is None else f" {own.low:+.2f} to {own.high:+.2f}"
    return Styled(f"{own.correlation:+.2f}{ends}", "bold" if strongest else "")


def _range(thing: str, counts: Sequence[int]) -> str:
    """Range of counts, such as "4 entries" or "8 to 26 entries"; entries may lack some probes."""
    least, most = min(counts), max(counts)
    return f"{least} to {counted(most, thing)}" if least < most else counted(most, thing)


def probe_table(rows: pa.Table, weights: str) -> Table:
    """Probe readings by length: a line for each probe and layer, with the mean over heads."""
    values: dict[tuple[tuple[str, int | None], int], list[float]] = defaultdict(list)
    for row in rows.to_pylist():
        if row["weights"] == weights:
            found = values[(row["metric"], row["layer"]), row["length"]]
            found += [row["value"]] if row["value"] is not None and isfinite(row["value"]) else []
    lengths = sorted({length for _, length in values})
    columns = [Column("probe", text=True), Column("layer"), *(Column(str(length), group=2) for length in lengths)]
    lines = [
        [name, "" if layer is None else str(layer), *(_mean(values.get(((name, layer), length))) for length in lengths)]
        for name, layer in dict.fromkeys(line for line, _ in values)
    ]
    return Table("", columns, lines)


def _mean(values: Sequence[float] | None) -> str:
    return f"{fmean(values):.4g}" if values else "-"


def answer_table(names: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()) -> Table:
    """Rows of an SQL answer under the names of the columns."""
    columns = [
        Column(name, text=not all(isinstance(row[place], int | float | Decimal | None) for row in rows))
        for place, name in enumerate(names)
    ]
    return Table("", columns, [[_answer(value) for value in row] for row in rows], notes)


def answer_list(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows of an SQL answer with a line for each column, for a terminal without room for all columns side by side."""
    columns = [Column("row"), Column("column", text=True), Column("value", text=True)]
    cells = (
        [str(number) if place == 0 else "", name, _answer(value)]
        for number, row in enumerate(rows, 1)
        for place, (name, value) in enumerate(zip(names, row, strict=True))
    )
    return Table("", columns, list(cells))


def _answer(value: object) -> str:
    """Value of an SQL answer as text. A fraction has four decimals, a small one four digits."""
    if isinstance(value, float | Decimal):
        value = float(value)
        return f"{value:.4g}" if abs(value) < 1 else f"{value:.4f}".rstrip("0").rstrip(".")
    return "" if value is None else str(value)
