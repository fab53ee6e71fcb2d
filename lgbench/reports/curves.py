"""Curves of runs and bars of distributions in a terminal: a first look at new results, without DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lgbench.contracts import CONTEXT_FREE, PRIMARY_METRIC
from lgbench.errors import RunFileError
from lgbench.experiment.record import ExperimentRecord, ProtocolUse
from lgbench.results import run_files
from lgbench.results.columns import mean_of_known, models_and_context_free, rounded
from lgbench.results.metrics import Metric, described
from lgbench.terminal import counted, printable

BLOCKS, TRAINED = "▁▂▃▄▅▆▇█", "│"

MAX_LINES = 20
"""Limit of lines with curves: above it, an entry has one line for all tasks, and further entries are counted."""
CELLS = (3, 2, 1)
"""Characters of a length, as many as the terminal has room for."""

IN_PART = "learned in part"
"""Verdict on a task that is right to less than half of the longest training length."""

NO_BETTER = 0.95
"""Error at the longest training length, relative to the baseline's, from which a task counts as not learned, although its few
short contexts may be right."""


class LineKey(NamedTuple):
    """Key of the runs of an entry on a family."""

    family: str
    protocol: ProtocolUse
    entry: str


class LengthCurve(NamedTuple):
    """Means of an entry by length, as on a board, and the context-free baseline."""

    name: str
    metric: Metric
    means: Mapping[int, float]
    context_free: Mapping[int, float]
    """Empty if unknown."""
    trained: int | None
    """Longest length within the training range, None without one."""
    seeds: int

    def share(self, length: int) -> float:
        """Distance from a perfect answer, as a share of the baseline's; of the worst value's if the baseline is perfect."""
        perfect, level = self.metric.perfect or 0.0, self.context_free.get(length)
        worst = (self.metric.worst or 0.0) if level is None or level == perfect else level
        return (self.means[length] - perfect) / (worst - perfect)

    @property
    def verdict(self) -> str:
        """Result of the training, such as "right to 40", by the training length: some models learn the empty string alone."""
        inside = [n for n in self.means if self.trained is not None and n <= self.trained] or list(self.means)
        known = [self.context_free[n] for n in inside if n in self.context_free]
        level = fmean(known) if len(known) == len(inside) else None
        if (
            self.context_free.get(inside[-1], self.metric.perfect) != self.metric.perfect
            and self.share(inside[-1]) >= NO_BETTER
        ):
            return f"not better than the baseline at {inside[-1]}"
        limit, sign = self.metric.limit(level), self.metric.sign
        right = list(takewhile(lambda n: limit is not None and sign * self.means[n] < sign * limit, self.means))
        return f"right to {right[-1]}" if right and 2 * right[-1] >= inside[-1] else IN_PART

    @property
    def numbers(self) -> str:
        """Means at the training length and at the longest length."""
        lengths = dict.fromkeys(length for length in (self.trained, max(self.means)) if length is not None)
        return f"{self.metric.label} {', '.join(f'{self.means[length]:.4f} at {length}' for length in lengths)}"


def lines(runs: Iterable[tuple[ExperimentRecord, Path]], width: int | None = None) -> list[str]:
    """What finished runs learned, with curves, in lines of `width`. Empty if nothing can be drawn.

    Unreadable files are left out; `lgbench leaderboard` reports them.
    """
    files: dict[LineKey, list[Path]] = {}
    for record, path in runs:
        files.setdefault(LineKey(record.family, record.protocol, record.entry), []).append(path)
    order = list(dict.fromkeys(group[:2] for group in files))  # entries of a family and protocol stand together
    groups = sorted(files, key=lambda group: order.index(group[:2]))[:MAX_LINES]
    drawn = {group: found for group in groups if (found := curves_of(files[group]))}
    if not drawn:
        return []
    tables = _by_task(drawn) if sum(map(len, drawn.values())) <= MAX_LINES else _by_entry(drawn)
    metric = next(iter(drawn.values()))[0].metric
    said = [
        f"{metric.label} by length, mean over seeds, as a share of that of the context-free baseline: {BLOCKS[0]} is exact, "
        f"{BLOCKS[-1]} as bad as the baseline, so up is worse; training ends at {TRAINED}"
    ]
    if any(right.startswith("right") for table in tables for _, right in table.rows):
        than = "" if metric.threshold is None else f"better than {metric.threshold:g} and "
        said.append(f"right to N: up to length N, {metric.label} is {than}nearer to exact than to the baseline")
    if any(right == IN_PART for table in tables for _, right in table.rows):
        said.append(f"{IN_PART}: better than the baseline, and not right up to half of the training length")
    for table in tables:
        said += [table.title, *_drawn(table, width)]
    return [*said, f"and {counted(left, 'more entry')}"] if (left := len(files) - len(drawn)) else said


class CurveTable(NamedTuple):
    """Curves over the same lengths."""

    title: str
    rows: Sequence[tuple[LengthCurve, str]]
    """Each curve with the text at its right."""
    below: str = ""
    """Text at the right of the lengths."""


def _by_task(drawn: Mapping[LineKey, Sequence[LengthCurve]]) -> list[CurveTable]:
    """Table for each entry: a line for each task with its verdict, and their mean."""
    found = []
    for group, (*tasks, mean) in drawn.items():
        where = group.family if tasks else mean.name
        title = f"{group.entry} on {where}, protocol {group.protocol}, {counted(mean.seeds, 'seed')}"
        if tasks:
            found.append(CurveTable(title, [*((task, task.verdict) for task in tasks), (mean, mean.numbers)]))
        else:
            found.append(CurveTable(title, [(mean, mean.verdict)], mean.numbers))
    return found


def _by_entry(drawn: Mapping[LineKey, Sequence[LengthCurve]]) -> list[CurveTable]:
    """Table for each family: a line for each entry with its mean."""
    found: dict[str, list[tuple[LengthCurve, str]]] = {}
    for group, (*_, mean) in drawn.items():
        title = f"{group.family}, protocol {group.protocol}"
        found.setdefault(title, []).append((mean._replace(name=group.entry), mean.numbers))
    return [CurveTable(title, rows) for title, rows in found.items()]


def _drawn(table: CurveTable, width: int | None) -> list[str]:
    """Lines of a table, with the lengths below."""
    rows, below = table.rows, table.below
    lengths = sorted({length for curve, _ in rows for length in curve.means})
    trained = max((curve.trained for curve, _ in rows if curve.trained is not None), default=None)
    names = max(len(curve.name) for curve, _ in rows)
    room = None if width is None else width - names - max(map(len, [below, *(right for _, right in rows)])) - 6
    cell = next((cell for cell in CELLS if room is None or cell * len(lengths) + 1 <= room), CELLS[-1])
    beside = room is None or cell * len(lengths) + 1 <= room
    found = []
    for curve, right in rows:
        blocked = "".join((_block(curve, length) * cell) + (TRAINED if length == trained else "") for length in lengths)
        found.append(f"  {curve.name:<{names}}  {blocked}" + (f"  {right}" if beside else ""))
        found += [] if beside else [f"    {right}"]
    axis = f"  {'':<{names}}  {_axis(lengths, trained, cell)}"
    return [*found, f"{axis}  {below}".rstrip()] if beside else [*found, axis, *([f"    {below}"] if below else [])]


def _block(curve: LengthCurve, length: int) -> str:
    return BLOCKS[min(max(int(curve.share(length) * len(BLOCKS)), 0), len(BLOCKS) - 1)] if length in curve.means else " "


def _axis(lengths: Sequence[int], trained: int | None, cell: int) -> str:
    """Lengths below the first character of their blocks where there is room, the longest and the trained one first."""
    places = {length: cell * i + (trained is not None and length > trained) for i, length in enumerate(lengths)}
    labels = {length: f"{length // 1024}k" if length >= 10_000 and length % 1024 == 0 else str(length) for length in lengths}
    shown: dict[int, str] = {}
    for length in dict.fromkeys([lengths[-1], *([trained] if trained in places else []), *lengths]):
        start, end = places[length], places[length] + len(labels[length])
        if all(end < place or start > place + len(text) for place, text in shown.items()):
            shown[start] = labels[length]
    line = ""
    for place, text in sorted(shown.items()):
        line = line.ljust(place) + text
    return line


def curves_of(paths: Iterable[Path]) -> list[LengthCurve]:
    """Curves of an entry at the lengths of boards: of each task, if there are several, and of their mean. Empty without any."""
    tables: list[pa.Table] = []
    metric = None
    for path in paths:
        with suppress(RunFileError, pa.ArrowException, OSError):
            metric = metric or primary_metric(path)
            tables += [final_values(path, metric)] if metric else []
    if metric is None or not tables or None in (metric.perfect, metric.worst) or metric.perfect == metric.worst:
        return []
    rows = pa.concat_tables(tables)
    tasks = sorted(pc.unique(rows["task"]).to_pylist())
    parts = [(task, rows.filter(pc.equal(rows["task"], task))) for task in tasks] if len(tasks) > 1 else []
    name = "mean" if len(tasks) > 1 else "".join(tasks)
    return [curve for own, part in [*parts, (name, rows)] if (curve := _curve(own, metric, part))]


def _curve(name: str, metric: Metric, rows: pa.Table) -> LengthCurve | None:
    """Curve of the mean over the tasks of some rows; None without values."""
    models, baseline = models_and_context_free(rows)
    seeds = {length: np.isfinite(own).sum() for (kind, length), own in models.columns.items() if kind == "length"}
    # Lengths with fewer seeds are left out: a change of seeds would bend the curve.
    lengths = [length for length in models.lengths if seeds.get(length) == max(seeds.values(), default=0)]
    means = {length: rounded(mean_of_known(models.columns["length", length]).item()) for length in lengths}
    levels = baseline.columns if baseline.tasks == models.tasks else {}
    context_free = {n: levels["length", n].item() for n in lengths if ("length", n) in levels}
    trained = [n for i, n in enumerate(models.lengths) if n in means and models.in_distribution[:, i].all()]
    return LengthCurve(name, metric, means, context_free, max(trained, default=None), len(models.seeds)) if means else None


def primary_metric(path: Path) -> Metric | None:
    """Primary metric as described in a run file, None without a description. Raises RunFileError."""
    return next((metric for metric in described(run_files.metadata(path)) if metric.name == PRIMARY_METRIC), None)


def final_values(path: Path, metric: Metric) -> pa.Table:
    """Values of raw weights at the end of training, at the lengths of boards, and the baseline without entry and seed.

    The selection of rows equals results/sql/values.sql, without DuckDB, because runs do not import DuckDB.
    """
    rows = run_files.read(path)
    last = pc.max(rows.filter(pc.field("length").is_valid())["step"])
    own = (pc.field("weights") == CONTEXT_FREE) | ((pc.field("weights") == "raw") & (pc.field("step") == last))
    same = (pc.field("metric") == metric.name) & (pc.field("metric_version") == metric.version) & pc.field("on_boards")
    rows = rows.filter(own & same)
    raw = pc.equal(rows["weights"], "raw")
    columns = {name: pc.if_else(raw, rows[name], None) for name in ("entry", "seed")}
    columns |= {name: rows[name] for name in ("task", "length", "in_distribution", "value")}
    return pa.table(columns | {"diverged": rows["diverged_step"].is_valid()})


MAX_ROWS = 16
"""Maximum number of answers. With more, only the answers with most probability under either distribution, in the task's order.
"""
WIDTH = 24
"""Maximum width of a bar, in characters."""


def bars(answers: Sequence[str], p: Sequence[float], right: Sequence[float] | None, console: Console) -> None:
    """Print p, with p* beside p where known."""
    columns = {"p": p} if right is None else {"p": p, "p*": right}
    shown = _most(list(columns.values()))
    names = [printable(answers[place]) for place in shown]
    letters = min(max(map(len, ["answer", *names])), console.width // 3)
    # Six letters of a number, and three blanks between columns.
    width = max(4, min(WIDTH, (console.width - letters - 2) // len(columns) - 12))
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("answer", width=letters, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("", width=width)
    for place, answer in zip(shown, names, strict=True):
        cells: list[RenderableType] = [Text(answer)]
        for values in columns.values():
            cells += [f"{values[place]:.4f}", Bar(1.0, 0.0, _finite(values[place]), width=width)]
        table.add_row(*cells)
    console.print(table, highlight=False)
    if left := len(answers) - len(shown):
        sums = ", ".join(
            f"{name} {sum(v for place, v in enumerate(values) if place not in shown):.4f}" for name, values in columns.items()
        )
        console.print(f"and {counted(left, 'more answer')}, together {sums}", highlight=False)


def _most(distributions: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the answers to print."""
    places = range(len(distributions[0]))
    most = sorted(places, key=lambda place: -max(_finite(values[place]) for values in distributions))
    return sorted(most[:MAX_ROWS])


def _finite(value: float) -> float:
    return value if isfinite(value) else 0.0
