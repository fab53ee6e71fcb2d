"""Curves of runs in a terminal, a line of blocks for each family and entry: the first look at new results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import RunFileError
from lgbench.results import run_files
from lgbench.results.columns import Models, Value, mean_of_known
from lgbench.results.metrics import Metric, described

if TYPE_CHECKING:
    from lgbench.experiment.record import ExperimentRecord, ProtocolUse

BLOCKS, TRAINED = "▁▂▃▄▅▆▇█", "│"
PLAIN_BLOCKS, PLAIN_TRAINED = "0123456789", "|"

MAX_LINES = 20
MAX_FILES = 500
"""No further line is drawn once so many are read, which takes about a second."""


class Group(NamedTuple):
    """The runs of one line."""

    family: str
    protocol: ProtocolUse
    entry: str


class Curve(NamedTuple):
    """The means of an entry by length, as on its board."""

    metric: Metric
    means: Mapping[int, float]
    trained: int | None
    """The longest of these lengths that models are trained on, None if there is none."""


def lines(runs: Iterable[tuple[ExperimentRecord, Path]], encoding: str) -> list[str]:
    """What to print of runs that are done, in characters that `encoding` has; nothing where there is nothing to draw.

    A file that cannot be read is left out; whatever ranks the results reports it.
    """
    files: dict[Group, list[Path]] = {}
    for record, path in runs:
        files.setdefault(Group(record.family, record.protocol, record.entry), []).append(path)
    drawn = {group: found for group in _first(files) if (found := curve(files[group]))}
    if not drawn:
        return []
    plain = not _has(encoding, BLOCKS + TRAINED)
    blocks, bar = (PLAIN_BLOCKS, PLAIN_TRAINED) if plain else (BLOCKS, TRAINED)
    metric = next(iter(drawn.values())).metric
    width = max(len(group.entry) for group in drawn)
    scale = f"{blocks[0]} is {metric.worst:g}, {blocks[-1]} is {metric.perfect:g}; training ends at {bar}"
    said = [f"{metric.label} by length, mean over seeds, raw weights ({scale})"]
    before = None
    for group, own in drawn.items():
        if before != group[:2]:
            said.append(f"{group.family}, protocol {group.protocol}, lengths {min(own.means)} to {max(own.means)}")
            before = group[:2]
        said.append(f"  {group.entry:<{width}}  {bars(own, blocks, bar)}  {_ends(own)}")
    return [*said, f"  and {len(files) - len(drawn)} more"] if len(files) > len(drawn) else said


def curve(paths: Iterable[Path]) -> Curve | None:
    """The means of one entry at the lengths that boards show; None where there is nothing to draw."""
    values: list[Value] = []
    metric = None
    for path in paths:
        with suppress(RunFileError, pa.ArrowException, OSError):
            metric = metric or _primary(path)
            values += _values(path, metric) if metric else []
    if metric is None or metric.perfect in (None, metric.worst):
        return None
    models = Models.of(values)
    seeds = {length: np.isfinite(own).sum() for (kind, length), own in models.columns.items() if kind == "length"}
    # A mean over other seeds than its neighbour's would be a bend in the curve that no run has.
    lengths = [length for length in models.lengths if seeds.get(length) == max(seeds.values())]
    means = {length: mean_of_known(models.columns["length", length]).item() for length in lengths}
    trained = [n for i, n in enumerate(models.lengths) if n in means and models.in_distribution[:, i].all()]
    return Curve(metric, means, max(trained, default=None)) if means else None


def _primary(path: Path) -> Metric | None:
    """The primary metric, as a run file describes it."""
    return next((metric for metric in described(run_files.metadata(path)) if metric.name == PRIMARY_METRIC), None)


def _values(path: Path, metric: Metric) -> list[Value]:
    """What a run file says of the raw weights at the lengths that boards show."""
    columns = ("entry", "seed", "task", "length", "in_distribution", "value")
    rows = pq.read_table(path, columns=[*columns, "metric", "metric_version", "weights", "on_boards"], partitioning=None)
    same = (pc.field("metric") == metric.name) & (pc.field("metric_version") == metric.version)
    rows = rows.filter(same & (pc.field("weights") == "raw") & pc.field("on_boards"))
    return [Value(*row) for row in zip(*(rows[name].to_pylist() for name in columns), strict=True)]


def bars(curve: Curve, blocks: Sequence[str], trained: str) -> str:
    """A block for each length, from the worst value of the metric to the perfect one; `trained` follows the training length."""
    drawn = ""
    for length, mean in curve.means.items():
        share = (mean - curve.metric.worst) / ((curve.metric.perfect or 0.0) - curve.metric.worst)
        drawn += blocks[min(max(int(share * len(blocks)), 0), len(blocks) - 1)]
        drawn += trained if length == curve.trained else ""
    return drawn


def _ends(curve: Curve) -> str:
    """The means at the training length and at the longest."""
    lengths = dict.fromkeys(length for length in (curve.trained, max(curve.means)) if length is not None)
    return ", ".join(f"{curve.means[length]:.4f} at {length}" for length in lengths)


def _first(files: Mapping[Group, Sequence[Path]]) -> list[Group]:
    """As many groups as are drawn, families and protocols together; the first however many files it has."""
    order = list(dict.fromkeys(group[:2] for group in files))
    groups: list[Group] = []
    read = 0
    for group in sorted(files, key=lambda group: order.index(group[:2])):
        read += len(files[group])
        if groups and (len(groups) == MAX_LINES or read > MAX_FILES):
            break
        groups.append(group)
    return groups


def _has(encoding: str, characters: str) -> bool:
    try:
        characters.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
