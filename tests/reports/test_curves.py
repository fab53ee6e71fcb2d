"""Curves at the end of a command: blocks and numbers, and the values that SQL chooses."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from helpers.run_files import simulated, write_rows

import lgbench_measurements
from lgbench.cli.main import main
from lgbench.experiment.record import ProtocolUse
from lgbench.reports import curves
from lgbench.reports.curves import final_values, primary_metric
from lgbench.results.columns import models_and_context_free
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric

TVD = Metric.of(lgbench_measurements.TotalVariation())


@pytest.fixture
def runs(tmp_path):
    """A function that adds a run and returns all runs so far, as `lines` takes them."""
    found = []

    def add(values, entry="arch+norm", seed=0, task="alpha", changes=(), more=(), **columns):
        rows = [*simulated(values, entry=entry, seed=seed, task=task, changes=list(changes), **columns), *more]
        path = write_rows(tmp_path / f"{len(found)}.parquet", rows)
        protocol = ProtocolUse("quick", 1, tuple(changes))
        found.append((SimpleNamespace(family=rows[0]["family"], protocol=protocol, entry=entry), path))
        return found

    return add


def test_a_line_has_a_block_a_length_that_rises_with_the_error_and_lengths_below(runs):
    """Without a baseline TVD 0, 0.1, 0.4, 0.9 and 1 are drawn as they are: of eight blocks the 1st, 1st, 4th, 8th and 8th."""
    lines = curves.lines(runs({4: 0.0, 8: 0.1, 16: 0.4, 32: 0.9, 64: 1.0}))
    assert lines[-3:] == [
        "arch+norm on alpha, protocol quick/1, 1 seed",
        "  alpha  ▁▁▁▁▁▁│▄▄▄██████  right to 4",
        "         4  8   16 32 64  TVD 0.1000 at 8, 1.0000 at 64",
    ]
    assert "▁ is exact, █ as bad as the baseline, so up is worse; training ends at │" in lines[0]
    assert lines[1] == "right to N: up to length N, TVD is better than 0.1 and nearer to exact than to the baseline"


def test_errors_are_shares_of_those_of_the_context_free_baseline(runs):
    """Shares 0, 0.5 and 1.1, although the baseline is different at each length; and the absolute value where it is perfect."""
    context_free = simulated({4: 0.3, 8: 0.4, 16: 0.5, 32: 0.0}, weights="chance")
    lines = curves.lines(runs({4: 0.0, 8: 0.2, 16: 0.55, 32: 0.3}, more=context_free))
    assert lines[-2].startswith("  alpha  ▁▁▁▅▅▅│███▃▃▃  ")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({4: 0.01, 8: 0.05, 16: 0.09, 32: 0.2}, "right to 16"),
        ({4: 0.01, 8: 0.05, 16: 0.09, 32: 0.05}, "right to 32"),
        ({4: 0.3, 8: 0.1, 16: 0.3, 32: 0.3}, "learned in part"),
        ({2: 0.0, 4: 0.2, 8: 0.2, 16: 0.3}, "learned in part"),  # right to a quarter of the training length
        ({4: 0.3, 8: 0.3, 16: 0.0, 32: 0.0}, "not better than the baseline at 8"),
        ({4: 0.01, 8: 0.29, 16: 0.3, 32: 0.3}, "not better than the baseline at 8"),  # some learn the empty string alone
    ],
)
def test_a_task_has_a_verdict(runs, values, said):
    """The baseline is 0.3, so the limit is the threshold of TVD, 0.1."""
    lines = curves.lines(runs(values, more=simulated(dict.fromkeys(values, 0.3), weights="chance")))
    assert lines[-2].endswith(f"  {said}")
    assert sum(line.startswith("learned in part: better than the baseline") for line in lines) == (said == "learned in part")


def test_a_family_has_a_line_a_task_and_their_mean(runs):
    for seed in range(2):
        runs({8: 0.0, 16: 0.05}, seed=seed, task="alpha-1", family="alpha")
        found = runs({8: 0.2 * seed, 16: 0.6 + 0.2 * seed}, seed=seed, task="alpha-2", family="alpha")
    assert curves.lines(found)[-5:] == [
        "arch+norm on alpha, protocol quick/1, 2 seeds",
        "  alpha-1  ▁▁▁│▁▁▁  right to 16",
        "  alpha-2  ▁▁▁│▆▆▆  learned in part",
        "  mean     ▁▁▁│▄▄▄  TVD 0.0500 at 8, 0.3750 at 16",
        "           8   16",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_curves_fit_the_terminal_and_lengths_do_not_touch(runs, width):
    lengths = [2**power for power in range(15)]
    found = runs({length: 0.5 for length in lengths}, task="a-long-name", trained=16)
    lines = curves.lines(found, width)[1:]
    assert max(len(line) for line in lines if "▅" in line or "16k" in line) <= width
    axis = next(line for line in lines if "16k" in line)
    named = re.findall(r"\b(?:\d+|16k)\b", axis.partition("TVD")[0])
    assert {"16", "16k"} <= set(named) <= {*map(str, lengths), "16k"}


def test_only_tvd_of_raw_weights_at_the_lengths_of_boards_is_drawn(runs, tmp_path):
    found = runs({0: 1.0, 6: 1.0, 7: 1.0, 8: 0.0, 12: 1.0, 16: 0.0, 21: 0.5})
    path = found[0][1]
    rows = simulated({6: 1.0, 8: 0.25, 12: 1.0, 16: 0.0, 21: 0.5}, trained=6)
    rows += simulated({8: 1.0, 16: 1.0, 64: 1.0}, weights="ema") + simulated({8: 0.0, 64: 1.0}, metric="accuracy")
    path.unlink()
    write_rows(path, rows)
    assert curves.lines(found)[-2:] == [
        "  alpha  ███│▃▃▃▁▁▁▅▅▅  learned in part",
        "         6   8  16 21  TVD 1.0000 at 6, 0.5000 at 21",
    ]


def test_a_length_that_some_run_lacks_is_not_drawn(runs):
    runs({8: 0.0, 16: 0.0, 32: 0.0}, seed=0)
    lines = curves.lines(runs({8: 0.5, 16: 0.5, 32: None}, seed=1))
    assert lines[-1] == "         8   16  TVD 0.2500 at 8, 0.2500 at 16"


def test_families_and_protocols_are_never_mixed(runs):
    for changes in ((), (("train.lr", "0.1"),)):
        for entry in ("a+n", "longer+n"):
            runs({8: 0.0, 16: 0.5}, entry=entry, changes=changes)
    found = runs({8: 0.0}, entry="a+n", task="beta")
    titles = [line for line in curves.lines(found)[2:] if not line.startswith(" ")]
    under = [("alpha", "quick/1"), ("alpha", "quick/1 train.lr=0.1")]
    both = [f"{entry} on {task}, protocol {use}, 1 seed" for task, use in under for entry in ("a+n", "longer+n")]
    assert titles == [*both, "a+n on beta, protocol quick/1, 1 seed"]


def test_many_entries_have_one_line_each_and_the_last_are_counted_without_reading_them(runs, monkeypatch):
    for number in range(curves.MAX_LINES + 5):
        found = runs({8: 0.0}, entry=f"arch+n{number}")
    read = []
    one = curves.LengthCurve("alpha-1", TVD, {8: 1.0}, {}, 8, 1)
    monkeypatch.setattr(curves, "curves_of", lambda paths: read.extend(paths) or [one, one, one._replace(name="mean")])
    lines = curves.lines(found)
    assert lines[1] == "alpha, protocol quick/1" and lines[2].startswith("  arch+n0   ███│  TVD 1.0000 at 8")
    assert lines[-1] == "and 5 more entries" and len(lines) == 2 + curves.MAX_LINES + 2
    assert len(read) == curves.MAX_LINES


def test_a_file_that_cannot_be_read_or_has_no_tvd_is_passed_over(runs, tmp_path):
    found = runs({8: 0.25, 16: 0.25})
    (tmp_path / "broken.parquet").write_bytes(b"no Parquet")
    about = found[0][0]
    gone = [(about, tmp_path / "broken.parquet"), (about, tmp_path / "gone.parquet")]
    assert curves.lines(found + gone)[-2] == "  alpha  ▃▃▃│▃▃▃  learned in part"
    assert curves.lines(gone) == [] == curves.lines([])
    assert curves.lines(runs({8: 0.25}, metric="accuracy")[-1:]) == []


def test_a_run_ends_with_its_curve_whether_it_was_done_before_or_not(tmp_path, toys_alone):
    arguments = ["run", "--task", "toy-walk", "--arch", "toy-table", "--protocol", "quick", "--set", "train.steps=2"]
    arguments += ["--seeds", "0", "--results", str(tmp_path)]
    outputs = [CliRunner().invoke(main, arguments).stdout for _ in range(2)]
    first, again = ([line for line in output.splitlines() if line.startswith("  toy-walk  ")] for output in outputs)
    assert len(first) == 1 and first == again and "│" in first[0]
    for output in outputs:
        assert output.index("1 run") < output.index("TVD by length")


LENGTHS = (0, 1, 2, 4, 6, 8, 11, 16, 21, 32, 64)


def test_the_values_that_a_run_draws_are_those_that_sql_chooses(tmp_path):
    draw = random.Random(0)

    def values(**columns):
        return simulated({n: draw.choice([None, draw.random()]) for n in LENGTHS if draw.random() < 0.9}, **columns)

    for task in ("alpha-1", "alpha-2"):
        for entry in ("arch+norm", "arch+other"):
            for seed in range(4):
                same = {"task": task, "family": "alpha", "entry": entry, "seed": seed}
                same["diverged_step"] = 3 if draw.random() < 0.3 else None
                rows = values(**same) + values(**same, metric="accuracy")
                rows += values(**same, weights="ema") + values(**same, weights="chance")
                curve = {"metric": "train_loss", "metric_version": None, "length": None, "in_distribution": None}
                rows += [row | curve | {"on_boards": None} for row in simulated({5: 2.5}, **same)]
                write_rows(tmp_path / f"{task}.{entry}.{seed}.parquet", rows)
    paths = sorted(tmp_path.glob("*.parquet"))
    assert [primary_metric(path) for path in paths] == [TVD] * len(paths)
    found, _ = models_and_context_free(pa.concat_tables(final_values(path, TVD) for path in paths))
    ((_, board),) = Results(tmp_path).models("tvd")
    own = [board.entries.index(entry) for entry in found.entries]
    assert found.entries == ("arch+norm", "arch+other") == tuple(entry for entry in board.entries if "@" not in entry)
    assert (found.seeds, found.tasks, found.lengths) == (board.seeds, board.tasks, board.lengths)
    np.testing.assert_array_equal(found.values, board.values[own])
    np.testing.assert_array_equal(found.measured, board.measured[own])
    np.testing.assert_array_equal(found.in_distribution, board.in_distribution)
    assert found.diverged == {(entry, seed) for entry, seed in board.diverged if "@" not in entry}
    assert np.isnan(found.values).any() and not found.measured.all() and found.diverged


def test_values_of_another_version_are_not_taken(tmp_path):
    path = write_rows(tmp_path / "run.parquet", simulated({8: 0.5}) + simulated({16: 0.5}, metric_version=2))
    assert final_values(path, TVD)["length"].to_pylist() == [8]


def test_a_file_that_describes_no_primary_metric_has_none(tmp_path):
    path = write_rows(tmp_path / "run.parquet", simulated({8: 0.5}), experiment={}, measurements=[])
    assert primary_metric(path) is None
