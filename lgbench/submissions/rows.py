"""Whether the rows of a run file are those of its experiment: which rows it must have, and what each one may say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import NamedTuple

import pyarrow as pa

from lgbench.contracts import CURVE_METRICS, LEARNING_RATE, SOUNDNESS
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.lengths import board_lengths
from lgbench.experiment.points import point_steps
from lgbench.measurement.chance import CHANCE, chance
from lgbench.measurement.expected import expected_point_scores, expected_scores
from lgbench.measurement.soundness import VERSION
from lgbench.results.metrics import Metric
from lgbench.results.rows import is_in_distribution, same_in_all_rows
from lgbench.submissions.footer import shown
from lgbench.submissions.probe_rows import parted, wrong_probe_rows
from lgbench.training.curve import curve_steps

MAX_EXAMPLES = 5
"""How many wrong rows of one kind are named."""

ROUNDING = 1e-6
"""How far a score may be outside its range, as a share where the bound is above 1: float32 p* sum to 1 within seven digits."""

CHANCE_TOLERANCE = 1e-4
"""How far a chance level may be from ours, as a share where it is above 1. It depends on the task alone, so only rounding
differs; boards show four digits."""


class RowKey(NamedTuple):
    """The number that a row holds."""

    weights: str
    metric: str
    step: int
    length: int | None
    """None for the training curve."""
    layer: int | None = None
    """Of a probe; None for all others, and for a number of the whole model."""
    head: int | None = None

    def __str__(self) -> str:
        if self.length is None:
            return f"{self.metric} at step {self.step}"
        return f"{self.metric} ({self.weights}){self.inside} at length {self.length} after step {self.step}"

    @property
    def inside(self) -> str:
        """Layer and head as they stand in a sentence, after a space; nothing for a number of the whole model."""
        layer = "" if self.layer is None else f" in layer {self.layer}"
        return layer if self.head is None else f"{layer}, head {self.head}"


class Bounds(NamedTuple):
    """The least and the greatest value that a score can have."""

    low: float
    high: float

    @classmethod
    def of(cls, metric: Metric) -> Bounds:
        """Those of the range, and the value that a model gets whose answers are not finite."""
        worst = () if metric.worst is None else (metric.worst,)
        return cls(min([metric.lowest, *worst]), max([metric.highest, *worst]))

    def hold(self, value: float) -> bool:
        """Whether a finite value is between the bounds, or beyond one by rounding alone."""
        if self.low <= value <= self.high:
            return math.isfinite(value)
        near = self.low if value < self.low else self.high
        return abs(value - near) <= ROUNDING * max(1.0, abs(near))

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}" if math.isfinite(self.high) else f"a number from {self.low:g}"


class Flags(NamedTuple):
    """The columns that have exactly one right value."""

    metric_version: int | None
    in_distribution: bool | None
    on_boards: bool | None


class Expected(NamedTuple):
    """The content that a row must have."""

    n: int
    exact: bool
    """Whether the column n is exactly `n`. If not, it is at most `n`, and where it is 0 there is no value."""
    flags: Flags
    bounds: Bounds | None
    """Of a score; None for the training curve and for a learning rate."""
    value: float | None = None
    """The value, where the task alone decides it, or the footer says it."""


def expected_rows(experiment: Experiment) -> dict[RowKey, Expected]:
    """Every row of a run: the scores of each weight variant at the end and at its points, chance levels, the training curve,
    and the learning rate if tuning chose it."""
    task, train, evaluate, last = experiment.task, experiment.train, experiment.evaluate, experiment.train.steps
    metrics = {measurement.name: Metric.of(measurement) for measurement in experiment.measurements}
    bounds = {name: Bounds.of(metric) for name, metric in metrics.items()}
    found: dict[RowKey, Expected] = {}

    versions = {name: metric.version for name, metric in metrics.items()} | dict.fromkeys(SOUNDNESS, VERSION)
    bounds |= dict.fromkeys(SOUNDNESS, Bounds(0, 1))

    def flags(metric: str, length: int, on_boards: bool) -> Flags:
        return Flags(versions[metric], is_in_distribution(experiment, length), on_boards)

    for name, length, n, exact, on_boards in expected_scores(task, experiment.measurements, train, evaluate):
        score = Expected(n, exact, flags(name, length, on_boards), bounds[name])
        found |= {RowKey(weights, name, last, length): score for weights in ("raw", *experiment.record.averagers)}
    for name, length, n, exact, on_boards in expected_point_scores(task, experiment.measurements, train, evaluate):
        score = Expected(n, exact, flags(name, length, on_boards), bounds[name])
        for step in point_steps(train, evaluate):
            found |= {RowKey(weights, name, step, length): score for weights in ("raw", *experiment.record.averagers)}
    shown = board_lengths(task, train, evaluate)
    for _, name, length, value, n, *_ in chance(task, experiment.measurements, train, evaluate):
        found[RowKey(CHANCE, name, last, length)] = Expected(n, True, flags(name, length, length in shown), bounds[name], value)
    if tuning := experiment.record.tuning:
        rate = Expected(len(tuning.grid), True, Flags(None, None, None), None, train.lr)
        found[RowKey("raw", LEARNING_RATE, last, None)] = rate
    for before, step in pairwise([0, *curve_steps(last)]):
        point = Expected(step - before, True, Flags(None, None, None), None)
        found |= {RowKey("raw", metric, step, None): point for metric in CURVE_METRICS}
    return found


def is_checked(table: pa.Table) -> bool:
    """Whether the rows say if the model's answers are sound. Runs that were made before lgbench asked do not."""
    return not set(SOUNDNESS).isdisjoint(table.column("metric").unique().to_pylist())


def unsound(table: pa.Table) -> set[tuple[str, str]]:
    """The weights whose answers are not sound, with the name of what is wrong."""
    names = (table.column(name).to_pylist() for name in ("weights", "metric", "value"))
    return {(weights, metric) for weights, metric, value in zip(*names, strict=True) if metric in SOUNDNESS and value}


def keys(table: pa.Table) -> list[RowKey]:
    """The key of each row, in order."""
    return list(map(RowKey, *(table.column(name).to_pylist() for name in RowKey._fields)))


def wrong_rows(experiment: Experiment, table: pa.Table, expected: Mapping[RowKey, Expected]) -> Iterator[str]:
    """A sentence for each thing that is wrong with the rows of an experiment."""
    of_probes, table = parted(experiment, table)
    yield from wrong_probe_rows(experiment, of_probes)
    if table.num_rows > 2 * len(expected):  # a closer look would only take memory
        yield f"it has {table.num_rows} rows, and this run has {len(expected)}"
        return
    if not is_checked(table):
        expected = {key: row for key, row in expected.items() if key.metric not in SOUNDNESS}
    for rows in (table, of_probes):
        yield from _wrong_everywhere(experiment, rows) if rows.num_rows else ()
    found = keys(table)
    wrong = list(_wrong_keys(found, expected))
    yield from wrong
    if not wrong:
        diverged = table.column("diverged_step").unique().to_pylist() != [None]
        yield from _some(_wrong_values(found, table, expected, diverged), "wrong rows")


def _wrong_everywhere(experiment: Experiment, table: pa.Table) -> Iterator[str]:
    """A sentence for each error in the columns that have one value in a whole run."""
    for name, right in same_in_all_rows(experiment.record).items():
        wrong = next((value for value in table.column(name).to_pylist() if value != right), right)
        if wrong != right:
            yield f"{name} is {_said(wrong)} in its rows, and {_said(right)} by its footer"
    weights, plugins = (table.column(name).to_pylist() for name in ("weights", "plugins"))
    right_of = {name: experiment.record.plugins_of(name or "") for name in set(weights)}
    if other := next(((name, found) for name, found in zip(weights, plugins, strict=True) if found != right_of[name]), None):
        name, found = other
        yield f"plugins is {_said(found)} in its rows of {shown(name)}, and {_said(right_of[name])} by its footer"
    steps = table.column("diverged_step").unique().to_pylist()
    last = experiment.train.steps
    if len(steps) > 1 or not (steps[0] is None or 1 <= steps[0] <= last):
        several = " and ".join(str(step) for step in steps[:3])
        yield f"diverged_step is {several}, expected the same in all rows: null, or a step from 1 to {last}"


def _said(value: object) -> str:
    return shown(" ".join(f"{key}={text}" for key, text in value) if isinstance(value, list) else value)


def _wrong_keys(found: list[RowKey], expected: Mapping[RowKey, Expected]) -> Iterator[str]:
    counts = Counter(found)
    kinds = {
        "lacks {}, which this run has": [str(key) for key in expected if key not in counts],
        "has {}, which this run does not have": [_strange(key) for key in counts if key not in expected],
        "has {} more than once": [str(key) for key, count in counts.items() if count > 1 and key in expected],
    }
    for sentence, names in kinds.items():
        if names:
            more = f" and {len(names) - 3} more rows" if len(names) > 3 else ""
            yield f"it {sentence.format(', '.join(names[:3]) + more)}"


def _strange(key: RowKey) -> str:
    """A key in which every word is a stranger's."""
    said = {name: value for name, value in key._asdict().items() if value is not None or name not in ("layer", "head")}
    return " ".join(f"{name}={shown(value)}" for name, value in said.items())


def _wrong_values(found: list[RowKey], table: pa.Table, expected: Mapping[RowKey, Expected], diverged: bool) -> Iterator[str]:
    values, counts = (table.column(name).to_pylist() for name in ("value", "n"))
    flags = map(Flags, *(table.column(name).to_pylist() for name in Flags._fields))
    for key, value, n, said in zip(found, values, counts, flags, strict=True):
        wanted = expected[key]
        if said != wanted.flags:
            yield from _other_flags(key, said, wanted.flags)
        if n != wanted.n and (wanted.exact or n is None or not 0 <= n < wanted.n):
            yield f"n of {key} is {n}, expected {'' if wanted.exact else 'at most '}{wanted.n}"
        elif expected_value := _expected_value(wanted, value, n, diverged):
            yield f"{key} is {value}, expected {expected_value}"


def _other_flags(key: RowKey, found: Flags, right: Flags) -> Iterator[str]:
    for name, value in right._asdict().items():
        if getattr(found, name) != value:
            yield f"{name} of {key} is {getattr(found, name)}, expected {value}"


def _expected_value(wanted: Expected, value: float | None, n: int, diverged: bool) -> str | None:
    """The value that is expected, in words; None if the value is right."""
    if wanted.bounds is None and wanted.value is not None:
        return None if value == wanted.value else f"{wanted.value}, the learning rate that was chosen"
    if wanted.bounds is None:
        fits = value is not None and (value >= 0 if math.isfinite(value) else diverged)
        return None if fits else "a finite number, not negative"
    if wanted.value is not None:
        return None if _near(value, wanted.value) else f"{wanted.value:.6g}, the chance level of the task"
    if n == 0:
        return None if value is None else "null, since it is over nothing"
    return None if value is not None and wanted.bounds.hold(value) else str(wanted.bounds)


def _near(value: float | None, right: float) -> bool:
    return value is not None and (value == right or abs(value - right) <= CHANCE_TOLERANCE * max(1.0, abs(right)))


def _some(sentences: Iterable[str], what: str) -> Iterator[str]:
    left = iter(sentences)
    yield from islice(left, MAX_EXAMPLES)
    more = sum(1 for _ in left)
    if more:
        yield f"and {more} more {what}"
