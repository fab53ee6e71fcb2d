"""Numbers of a file against those of a rerun: which are too far apart."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pyarrow as pa
import pytest

from lgbench.results.file_format import SCHEMA, Number, Place
from lgbench.submissions.verdict import OTHER_ROUNDING, RerunVerdict, Tolerance, distances


def scores(*values, metric="tvd", n=8):
    return {Place("raw", metric, 1, 5, length, None, None): Number(value, n) for length, value in enumerate(values)}


def curve(*values, metric="train_loss"):
    return {Place("raw", metric, None, step, None, None, None): Number(value, 1) for step, value in enumerate(values, 1)}


def disagreements(filed, here, tolerance):
    """Sentences, the worst first."""
    verdict = RerunVerdict(None, list(distances(filed, here, tolerance)), tolerance, [])
    return [each.sentence for each in verdict.disagreements]


STRICT, LENIENT = Tolerance(), OTHER_ROUNDING


@pytest.mark.parametrize(
    ("filed", "here", "tolerance", "said"),
    [
        (scores(0.5), scores(0.50005), STRICT, []),
        (scores(0.5), scores(0.52), STRICT, ["tvd (raw) at length 0 after step 5 is 0.5000 in the file and 0.5200 here"]),
        (scores(0.50001), scores(0.50002), Tolerance(0), ["0.50001 in the file and 0.50002 here"]),
        (scores(None, metric="roc_auc", n=0), scores(None, metric="roc_auc", n=0), STRICT, []),
        (scores(None), scores(0.5), LENIENT, ["is undefined in the file and 0.5000 here"]),
        (scores(0.5, n=7), scores(0.5), LENIENT, ["tvd (raw) at length 0 after step 5 is over 7 in the file and over 8 here"]),
        (scores(0.5, 0.1, 0.9), scores(0.5, 0.3, 0.6), STRICT, ["at length 2", "at length 1"]),
        (scores(0.5, 0.5), scores(0.7, 0.3), LENIENT, []),
        (
            scores(0.5, 0.5),
            scores(0.7, 0.6),
            LENIENT,
            ["the mean over lengths of tvd (raw) after step 5 is 0.5000 in the file and 0.6500"],
        ),
        (curve(100.0, 0.1), curve(100.009, 0.10005), STRICT, []),
        (curve(100.0, 0.1), curve(102.0, 0.12), STRICT, ["train_loss at step 1", "train_loss at step 2"][::-1]),
        (curve(math.nan, math.inf), curve(math.nan, math.inf), STRICT, []),
        (curve(math.nan, 1.0), curve(1.0, math.inf), STRICT, ["is nan in the file", "is 1.0000 in the file and inf here"]),
        (curve(1.0, 2.0), curve(2.0, 1.0), LENIENT, []),
        (
            curve(1.0, 2.0),
            curve(1.0, 2.5),
            LENIENT,
            ["the mean over steps of train_loss is 1.5000 in the file and 1.7500 here"],
        ),
        (curve(1.0, metric="gradient_norm"), curve(99.0, metric="gradient_norm"), LENIENT, []),
    ],
)
def test_numbers_that_are_too_far_apart_are_named_the_worst_first(filed, here, tolerance, said):
    found = disagreements(filed, here, tolerance)
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_a_row_that_one_of_both_lacks_is_named():
    both, one = scores(0.5, 0.25), scores(0.5)
    assert disagreements(both, one, STRICT) == ["tvd (raw) at length 1 after step 5 is in the file and not here"]
    assert disagreements(one, both, STRICT) == ["tvd (raw) at length 1 after step 5 is here and not in the file"]


def flagged(value: float) -> pa.Table:
    """Rows of a run with one number that says whether the model is causal."""
    columns = {"weights": "raw", "metric": "looks_ahead", "step": 5, "length": 8, "value": value, "n": 4, "diverged_step": None}
    return pa.Table.from_pylist([columns], schema=SCHEMA)


def test_no_tolerance_covers_a_flag_that_decides_whether_boards_rank_an_entry():
    for filed, here, sentence in ((0.0, 0.05, "0.0000 in the file and 0.0500 here"), (0.05, 0.0, "0.0500 in the file")):
        run = SimpleNamespace(rows=flagged(filed))
        (found,) = RerunVerdict.of(run, flagged(here), [], LENIENT).disagreements
        assert found.sentence.startswith(f"looks_ahead (raw) at length 8 after step 5 is {sentence}")
    assert RerunVerdict.of(run, flagged(0.1), [], LENIENT).agrees
