"""Curves of runs and bars of distributions in a terminal: a first look at new results, without DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lgbench.contracts import PRIMARY_METRIC
from lgbench.errors import RunFileError
from lgbench.results import run_files
from lgbench.results.columns import BoardValues, Value, Values, mean_of_known, rounded
from lgbench.results.metrics import Metric, described
from lgbench.terminal import printable

if TYPE_CHECKING:
    from lgbench.experiment.record import ExperimentRecord, ProtocolUse


BLOCKS, TRAINED = "▁▂▃▄▅▆▇█", "│"
PLAIN_BLOCKS, PLAIN_TRAINED = "0123456789", "|"

MAX_LINES = 20
MAX_FILES = 500
"""Limit of run files to read, about a second of reading. Further lines are not drawn."""


class LineKey(NamedTuple):
    """Key of a line: runs with equal keys share a line."""

    family: str
    protocol: ProtocolUse
    entry: str


class LengthCurve(NamedTuple):
    """Means of an entry by length, as on the entry's board."""

    metric: Metric
    means: Mapping[int, float]
    trained: int | None
    """Longest length within the training range, None without one."""


def lines(runs: Iterable[tuple[ExperimentRecord, Path]], encoding: str) -> list[str]:
    """Printable curves of finished runs in characters of `encoding`, empty if nothing can be drawn.

    Unreadable files are left out; `lgbench leaderboard` reports them.
    """
    files: dict[LineKey, list[Path]] = {}
    for record, path in runs:
        files.setdefault(LineKey(record.family, record.protocol, record.entry), []).append(path)
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
        said.append(f"  {group.entry:<{width}}  {block_line(own, blocks, bar)}  {_ends(own)}")
    return [*said, f"  and {len(files) - len(drawn)} more"] if len(files) > len(drawn) else said


def curve(paths: Iterable[Path]) -> LengthCurve | None:
    """Means of one entry at the lengths of boards, None if nothing can be drawn."""
    values: list[Value] = []
    metric = None
    for path in paths:
        with suppress(RunFileError, pa.ArrowException, OSError):
            metric = metric or primary_metric(path)
            values += raw_values(path, metric) if metric else []
    if metric is None or None in (metric.perfect, metric.worst) or metric.perfect == metric.worst:
        return None
    models = BoardValues.of(Values.of(values))
    seeds = {length: np.isfinite(own).sum() for (kind, length), own in models.columns.items() if kind == "length"}
    # Lengths with fewer seeds are left out: a change of seeds would bend the curve.
    lengths = [length for length in models.lengths if seeds.get(length) == max(seeds.values(), default=0)]
    means = {length: rounded(mean_of_known(models.columns["length", length]).item()) for length in lengths}
    trained = [n for i, n in enumerate(models.lengths) if n in means and models.in_distribution[:, i].all()]
    return LengthCurve(metric, means, max(trained, default=None)) if means else None


def primary_metric(path: Path) -> Metric | None:
    """Primary metric as described in a run file, None without a description. Raises RunFileError."""
    return next((metric for metric in described(run_files.metadata(path)) if metric.name == PRIMARY_METRIC), None)


def raw_values(path: Path, metric: Metric) -> list[Value]:
    """Values of raw weights at the end of training, at the lengths of boards.

    The selection of rows equals results/sql/values.sql, without DuckDB, because runs do not import DuckDB.
    """
    rows = run_files.read(path)
    last = pc.max(rows.filter(pc.field("length").is_valid())["step"])
    same = (pc.field("metric") == metric.name) & (pc.field("metric_version") == metric.version) & (pc.field("step") == last)
    rows = rows.filter(same & (pc.field("weights") == "raw") & pc.field("on_boards"))
    names = ("entry", "seed", "task", "length", "in_distribution", "value", "diverged_step")
    found = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return [Value(*row)._replace(diverged=step is not None) for *row, step in found]


def block_line(curve: LengthCurve, blocks: Sequence[str], trained: str) -> str:
    """Block characters by length, from the metric's worst to perfect value. `trained` marks the end of the training lengths."""
    drawn = ""
    for length, mean in curve.means.items():
        worst, perfect = curve.metric.worst or 0.0, curve.metric.perfect or 0.0
        share = (mean - worst) / (perfect - worst)
        drawn += blocks[min(max(int(share * len(blocks)), 0), len(blocks) - 1)]
        drawn += trained if length == curve.trained else ""
    return drawn


def _ends(curve: LengthCurve) -> str:
    """Means at the training length and at the longest length."""
    lengths = dict.fromkeys(length for length in (curve.trained, max(curve.means)) if length is not None)
    return ", ".join(f"{curve.means[length]:.4f} at {length}" for length in lengths)


def _first(files: Mapping[LineKey, Sequence[Path]]) -> list[LineKey]:
    """Lines to draw within MAX_LINES and MAX_FILES, grouped by family and protocol. The first line always counts."""
    order = list(dict.fromkeys(group[:2] for group in files))
    groups: list[LineKey] = []
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


MAX_ROWS = 16
"""Maximum number of answers. With more, only the answers with most probability under either distribution, in the task's order.
"""
WIDTH = 24
"""Maximum width of a bar, in characters."""


def bars(answers: Sequence[str], p: Sequence[float], right: Sequence[float] | None, console: Console) -> None:
    """Print p, with p* beside p where known."""
    columns = {"p": p} if right is None else {"p": p, "p*": right}
    shown, width = _most(list(columns.values())), max(4, min(WIDTH, console.width // 2 - 16))
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("answer")
    for name in columns:
        table.add_column(name, justify="right")
        table.add_column("", width=width)
    for place in shown:
        cells: list[RenderableType] = [Text(printable(answers[place]))]
        for values in columns.values():
            cells += [f"{values[place]:.4f}", _bar(values[place], width, console.encoding)]
        table.add_row(*cells)
    console.print(table, highlight=False)
    if left := len(answers) - len(shown):
        sums = ", ".join(
            f"{name} {sum(v for place, v in enumerate(values) if place not in shown):.4f}" for name, values in columns.items()
        )
        console.print(f"and {left} more answers, which have together {sums}", highlight=False)


def _most(distributions: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the answers to print."""
    places = range(len(distributions[0]))
    most = sorted(places, key=lambda place: -max(_finite(values[place]) for values in distributions))
    return sorted(most[:MAX_ROWS])


def _bar(value: float, width: int, encoding: str) -> RenderableType:
    share = _finite(value)
    if encoding.lower().startswith("utf"):
        return Bar(1.0, 0.0, share, width=width)
    return "#" * round(share * width)


def _finite(value: float) -> float:
    return value if isfinite(value) else 0.0
