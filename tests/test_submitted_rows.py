"""The rows of a submitted run: all that it must have, each once, with a possible value, and no other."""

from __future__ import annotations

import math
from pathlib import Path

import published
import pytest
from published import forged

from lgbench.errors import Refused, RunFileError
from lgbench.submissions import submission
from lgbench.submissions.inspection import Inspector
from lgbench.submissions.reader import Reader


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    """A run of a language and one of another task."""
    return published.make(tmp_path_factory.mktemp("made"), seeds=[3])


@pytest.fixture(scope="module")
def honest(made) -> Path:
    return next(path for path in made if path.name.startswith("small-even"))


@pytest.fixture(scope="module")
def inspect():
    """A function that inspects one file as a submission does."""
    inspector = Inspector(published.registry(), submission.RULES)
    with Reader() as reader:
        yield lambda path: inspector.run(path, reader.read(path))


def every(**columns):
    return lambda rows: [row.update(columns) for row in rows]


def at(index, **columns):
    return lambda rows: rows[index].update(columns)


def first(metric, **columns):
    return lambda rows: next(row for row in rows if row["metric"] == metric).update(columns)


def without_point(step):
    return lambda rows: rows.__setitem__(slice(None), [row for row in rows if row["length"] is None or row["step"] != step])


def moved_point(step, to):
    return lambda rows: [row.update(step=to) for row in rows if row["length"] is not None and row["step"] == step]


def at_point(step, **columns):
    return lambda rows: next(row for row in rows if row["length"] is not None and row["step"] == step).update(columns)


POINTS = [
    (without_point(10), "at length 5 after step 10"),
    (lambda rows: [without_point(step)(rows) for step in (1, 2, 5, 10)], "it lacks accuracy (raw) at length 5 after step 1"),
    (without_point(20), "after step 20"),
    (moved_point(10, 11), "step=11 length=8"),
    (moved_point(5, 20), "more than once"),
    (at_point(5, value=1.5), "after step 5 is 1.5, expected a number from 0 to 1"),
    (at_point(5, n=128), "after step 5 is 128, expected 12"),
    (at_point(5, on_boards=None), "after step 5 is None, expected"),
    (at_point(5, weights="best"), "weights='best'"),
    (lambda rows: rows.append(rows[0] | {"step": 5, "metric": "looks_ahead"}), "metric='looks_ahead' step=5"),
]

ROWS = [
    *POINTS,
    (every(run_id="0" * 16), "run_id is '0000000000000000' in its rows"),
    (every(seed=4), "seed is 4 in its rows, and 3 by its footer"),
    (at(5, seed=4), "seed is 4 in its rows"),
    (every(entry="toy-table+better"), "entry is 'toy-table+better' in its rows"),
    (every(task="small-walk"), "task is 'small-walk' in its rows"),
    (every(family="large"), "family is 'large'"),
    (every(task_version=7), "task_version is 7"),
    (every(protocol="paper"), "protocol is 'paper' in its rows, and 'short' by its footer"),
    (every(protocol_version=2), "protocol_version is 2 in its rows, and 1 by its footer"),
    (every(changes=[("train.steps", "5")]), "changes is 'train.steps=5' in its rows, and '' by its footer"),
    (at(2, changes=[("train.steps", "5")]), "changes is 'train.steps=5' in its rows"),
    (every(changes=None), "changes is None in its rows"),
    (at(0, entry=None), "entry is None in its rows"),
    (at(3, diverged_step=5), "diverged_step is "),
    (every(diverged_step=21), "diverged_step is 21, expected the same in all rows: null, or a step from 1 to 20"),
    (every(diverged_step=0), "diverged_step is 0"),
    (lambda rows: rows.pop(0), "it lacks accuracy (raw) at length 0 after step 20, which this run has"),
    (lambda rows: rows.clear() or rows.append({"value": 0.5}), "it lacks"),
    (lambda rows: rows.append(dict(rows[4])), "it has accuracy (raw) at length 4 after step 20 more than once"),
    (lambda rows: rows.extend(dict(row) for row in list(rows) * 3), "rows, and this run has"),
    (at(0, length=64), "it has weights='raw' metric='accuracy' step=20 length=64, which this run does not have"),
    (at(0, weights="best"), "weights='best'"),
    (at(0, metric="beauty"), "metric='beauty'"),
    (at(0, metric=None), "metric=None"),
    (at(0, step=19), "step=19"),
    (first("tvd", value=math.nan), "tvd (raw) at length 0 after step 20 is nan, expected a number from 0 to 1"),
    (first("tvd", value=math.inf), "is inf, expected a number from 0 to 1"),
    (first("accuracy", value=-0.01), "accuracy (raw) at length 0 after step 20 is -0.01"),
    (first("accuracy", value=1.01), "accuracy (raw) at length 0 after step 20 is 1.01"),
    (first("roc_auc", value=7.0), "roc_auc (raw) at length 1 after step 20 is 7.0"),
    (first("tvd", value=None), "is None, expected a number from 0 to 1"),
    (first("roc_auc", value=None), "is None, expected a number from 0 to 1"),
    (first("roc_auc", value=None, n=0), "n of roc_auc (raw) at length 1 after step 20 is 0, expected 128"),
    (first("tvd", n=1), "n of tvd (raw) at length 0 after step 20 is 1, expected 128"),
    (first("tvd", n=None), "n of tvd (raw) at length 0 after step 20 is None"),
    (first("tvd", in_distribution=False), "in_distribution of tvd (raw) at length 0 after step 20 is False, expected True"),
    (first("tvd", on_boards=True), "on_boards of tvd (raw) at length 0 after step 20 is True, expected False"),
    (first("tvd", metric_version=2), "metric_version of tvd (raw) at length 0 after step 20 is 2, expected 1"),
    (first("tvd", metric_version=None), "metric_version of tvd (raw) at length 0 after step 20 is None, expected 1"),
    (first("train_loss", value=math.nan), "train_loss at step 1 is nan, expected a finite number, not negative"),
    (first("train_loss", value=None), "train_loss at step 1 is None"),
    (first("gradient_norm", value=-1.0), "gradient_norm at step 1 is -1.0"),
    (first("gradient_norm", n=9), "n of gradient_norm at step 1 is 9, expected 1"),
    (first("train_loss", in_distribution=True), "in_distribution of train_loss at step 1 is True, expected None"),
    (first("train_loss", on_boards=True), "on_boards of train_loss at step 1 is True, expected None"),
    (lambda rows: [row.update(value=3.0) for row in rows], "more wrong rows"),
]


@pytest.mark.parametrize(("change", "said"), ROWS, ids=[said for _, said in ROWS])
def test_rows_that_are_not_those_of_the_experiment_are_refused(honest, tmp_path, inspect, change, said):
    path = forged(honest, tmp_path / honest.name, rows=change)
    with pytest.raises(RunFileError) as refused:
        inspect(path)
    assert said in str(refused.value)


def test_an_auc_may_be_undefined_where_every_token_is_legal(made, tmp_path, inspect):
    path = next(path for path in made if path.name.startswith("small-walk.toy-table"))
    assert inspect(forged(path, tmp_path / "a.parquet", rows=first("roc_auc", value=None, n=0)))
    for wrong in ({"value": None, "n": 5}, {"value": 0.5, "n": 0}, {"value": 0.5, "n": 129}):
        with pytest.raises(Refused, match=r"roc_auc \(raw\) at length 1 after step 20"):
            inspect(forged(path, tmp_path / f"{wrong}.parquet", rows=first("roc_auc", **wrong)))
