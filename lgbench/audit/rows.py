"""Whether the rows of a run file are those of its experiment: which there must be, and what may stand in each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import NamedTuple

import pyarrow as pa

from lgbench import runfiles
from lgbench.audit.footer import shown
from lgbench.contracts import Task
from lgbench.evaluate import measures
from lgbench.experiment import Experiment
from lgbench.training.population import curve_steps

MOST_EXAMPLES = 5
"""How many wrong rows of one kind are named."""

CURVE = ("train_loss", "gradient_norm")
"""What is measured in training."""

HIGHEST = 1 + 1e-6
"""What a score can be: p* is float32 and need not add up to 1 beyond seven digits."""


class Key(NamedTuple):
    """What one row is about."""

    weights: str
    metric: str
    step: int
    length: int | None
    """None for what was measured in training."""

    def __str__(self) -> str:
        variant = "" if self.length is None else f" ({self.weights})"
        return f"{self.metric}{variant} at {f'step {self.step}' if self.length is None else f'length {self.length}'}"


class Expected(NamedTuple):
    """What a row must say beside its value."""

    n: int
    always: bool
    """Whether `n` is exactly that; if not, it is that at most, and where it is 0 there is no value."""
    in_training_range: bool | None


def expected_rows(experiment: Experiment, task: Task) -> dict[Key, Expected]:
    """Every row of a run: the scores of each weight variant and the training curve."""
    train = experiment.train
    found: dict[Key, Expected] = {}
    for measure in measures(task, train, experiment.evaluate):
        inside = train.min_length <= measure.length <= train.max_length
        for weights in ("raw", *experiment.averagers):
            key = Key(weights, measure.metric, train.steps, measure.length)
            found[key] = Expected(measure.n, measure.always, inside)
    for before, step in pairwise([0, *curve_steps(train.steps)]):
        found |= {Key("raw", metric, step, None): Expected(step - before, True, None) for metric in CURVE}
    return found


def keys(table: pa.Table) -> list[Key]:
    """What each row is about, in order."""
    return list(map(Key, *(table.column(name).to_pylist() for name in Key._fields)))


def wrong_rows(experiment: Experiment, table: pa.Table, expected: Mapping[Key, Expected]) -> Iterator[str]:
    """A sentence for each thing that is wrong with the rows of an experiment."""
    if table.num_rows > 2 * len(expected):  # not worth a closer look, which takes memory
        yield f"it has {table.num_rows} rows, and this run has {len(expected)}"
        return
    table = table.cast(runfiles.SCHEMA)
    yield from _wrong_everywhere(experiment, table)
    found = keys(table)
    wrong = list(_wrong_keys(found, expected))
    yield from wrong
    if not wrong:
        diverged = table.column("diverged_step").unique().to_pylist() != [None]
        yield from _some(_wrong_values(found, table, expected, diverged), "wrong rows")


def _wrong_everywhere(experiment: Experiment, table: pa.Table) -> Iterator[str]:
    """What is the same in every row of a run."""
    for name in ("run_id", "entry", "task", "family", "task_version", "protocol", "seed"):
        wrong = [value for value in table.column(name).unique().to_pylist() if value != getattr(experiment, name)]
        if wrong:
            yield f"{name} is {shown(wrong[0])} in its rows, and {shown(getattr(experiment, name))} by its footer"
    steps = table.column("diverged_step").unique().to_pylist()
    last = experiment.train.steps
    if len(steps) > 1 or not (steps[0] is None or 1 <= steps[0] <= last):
        several = " and ".join(str(step) for step in steps[:3])
        yield f"diverged_step is {several}, expected one for the whole file: null, or a step from 1 to {last}"


def _wrong_keys(found: list[Key], expected: Mapping[Key, Expected]) -> Iterator[str]:
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


def _strange(key: Key) -> str:
    """A key of which every word is a stranger's."""
    return " ".join(f"{name}={shown(value)}" for name, value in key._asdict().items())


def _wrong_values(found: list[Key], table: pa.Table, expected: Mapping[Key, Expected], diverged: bool) -> Iterator[str]:
    columns = (table.column(name).to_pylist() for name in ("value", "n", "in_training_range"))
    for key, value, n, inside in zip(found, *columns, strict=True):
        wanted = expected[key]
        if inside is not wanted.in_training_range:
            yield f"in_training_range of {key} is {inside}, expected {wanted.in_training_range}"
        if n != wanted.n and (wanted.always or n is None or not 0 <= n < wanted.n):
            yield f"n of {key} is {n}, expected {'' if wanted.always else 'at most '}{wanted.n}"
        elif not (_possible_score(value, n) if key.length is not None else _possible_point(value, diverged)):
            what = "a number from 0 to 1" if key.length is not None else "a finite number, not negative"
            yield f"{key} is {value}, expected {what if n else 'null, since it is over nothing'}"


def _possible_score(value: float | None, n: int) -> bool:
    """Null where there was nothing to measure, and only there."""
    return value is None if n == 0 else value is not None and 0 <= value <= HIGHEST


def _possible_point(value: float | None, diverged: bool) -> bool:
    """A loss or a norm, which is not finite in a training that diverged."""
    return value is not None and (diverged if not math.isfinite(value) else value >= 0)


def _some(sentences: Iterable[str], what: str) -> Iterator[str]:
    left = iter(sentences)
    yield from islice(left, MOST_EXAMPLES)
    more = sum(1 for _ in left)
    if more:
        yield f"and {more} more {what}"
