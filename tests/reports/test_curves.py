"""Curves at the end of a command: blocks and numbers, and the values that SQL chooses."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.run_files import simulated, write_rows

import lgbench_measurements
from lgbench.cli.main import main
from lgbench.experiment.record import ProtocolUse
from lgbench.reports import curves
from lgbench.reports.curves import primary_metric, raw_values
from lgbench.results.columns import BoardValues, Values
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric

TVD = Metric.of(lgbench_measurements.TotalVariation())


@pytest.fixture
def runs(tmp_path):
    """A function that adds a run and returns all runs so far, as `lines` takes them."""
    found = []

    def add(values, entry="arch+norm", seed=0, task="alpha", changes=(), **columns):
        rows = simulated(values, entry=entry, seed=seed, task=task, changes=list(changes), **columns)
        path = write_rows(tmp_path / f"{len(found)}.parquet", rows)
        protocol = ProtocolUse("quick", 1, tuple(changes))
        found.append((SimpleNamespace(family=rows[0]["family"], protocol=protocol, entry=entry), path))
        return found

    return add


def test_a_line_has_a_block_a_length_and_the_numbers_at_both_ends(runs):
    """TVD 0, 0.1, 0.4, 0.9 and 1 leave 1, 0.9, 0.6, 0.1 and 0: of eight blocks the 8th, 8th, 5th, 1st and 1st."""
    lines = curves.lines(runs({4: 0.0, 8: 0.1, 16: 0.4, 32: 0.9, 64: 1.0}), "utf-8")
    assert lines[-1] == "  arch+norm  ██│▅▁▁  0.1000 at 8, 1.0000 at 64"
    assert lines[-2] == "alpha, protocol quick/1, lengths 4 to 64"
    assert "TVD" in lines[0] and "▁ is 1, █ is 0; training ends at │" in lines[0]


def test_without_utf8_shares_are_tenths_in_ascii(runs):
    for encoding in ("ascii", "cp1252", "nonsense"):
        lines = curves.lines(runs({4: 0.0, 8: 0.1, 16: 0.45, 32: 1.0}), encoding)
        assert lines[-1].startswith("  arch+norm  99|50  ")
        assert all(line.isascii() for line in lines) and "0 is 1, 9 is 0" in lines[0]


def test_a_line_is_the_mean_over_seeds_and_tasks_as_on_a_board(runs):
    runs({8: 0.0, 16: 0.2}, seed=0, task="alpha-1", family="alpha")
    runs({8: 0.1, 16: 0.4}, seed=1, task="alpha-1", family="alpha")
    runs({8: 0.2, 16: 0.6}, seed=0, task="alpha-2", family="alpha")
    lines = curves.lines(runs({8: 0.3, 16: 0.8}, seed=1, task="alpha-2", family="alpha"), "utf-8")
    assert lines[-1] == "  arch+norm  ▇│▅  0.1500 at 8, 0.5000 at 16"


def test_only_tvd_of_raw_weights_at_the_lengths_of_boards_is_drawn(runs, tmp_path):
    found = runs({0: 1.0, 6: 1.0, 7: 1.0, 8: 0.0, 12: 1.0, 16: 0.0, 21: 0.5})
    path = found[0][1]
    rows = simulated({6: 1.0, 8: 0.25, 12: 1.0, 16: 0.0, 21: 0.5}, trained=6)
    rows += simulated({8: 1.0, 16: 1.0, 64: 1.0}, weights="ema") + simulated({8: 0.0, 64: 1.0}, metric="accuracy")
    path.unlink()
    write_rows(path, rows)
    assert curves.lines(found, "utf-8")[-1] == "  arch+norm  ▁│▇█▅  1.0000 at 6, 0.5000 at 21"


def test_a_length_that_some_run_lacks_is_not_drawn(runs):
    runs({8: 0.0, 16: 0.0, 32: 0.0}, seed=0)
    lines = curves.lines(runs({8: 0.5, 16: 0.5, 32: None}, seed=1), "utf-8")
    assert lines[-1] == "  arch+norm  ▇│▇  0.2500 at 8, 0.2500 at 16"


def test_families_and_protocols_are_never_mixed(runs):
    for changes in ((), (("train.lr", "0.1"),)):
        for entry in ("a+n", "longer+n"):
            runs({8: 0.0, 16: 0.5}, entry=entry, changes=changes)
    lines = curves.lines(runs({8: 0.0}, entry="a+n", task="beta"), "utf-8")
    assert [line.split(",")[0:2] for line in lines[1:] if not line.startswith(" ")] == [
        ["alpha", " protocol quick/1"],
        ["alpha", " protocol quick/1 train.lr=0.1"],
        ["beta", " protocol quick/1"],
    ]
    assert sum(line.startswith("  a+n       █│▅") for line in lines) == 2
    assert lines[-1] == "  a+n       █│  0.0000 at 8"


def test_many_entries_are_cut_and_counted_without_reading_them(runs, monkeypatch):
    for number in range(curves.MAX_LINES + 5):
        found = runs({8: 0.0}, entry=f"arch+n{number}")
    read = []
    monkeypatch.setattr(curves, "curve", lambda paths: read.extend(paths) or curves.LengthCurve(TVD, {8: 1.0}, 8))
    lines = curves.lines(found, "utf-8")
    assert lines[-1] == "  and 5 more" and len(lines) == 1 + 1 + curves.MAX_LINES + 1
    assert len(read) == curves.MAX_LINES


def test_a_file_that_cannot_be_read_or_has_no_tvd_is_passed_over(runs, tmp_path):
    found = runs({8: 0.25, 16: 0.25})
    (tmp_path / "broken.parquet").write_bytes(b"no Parquet")
    about = found[0][0]
    gone = [(about, tmp_path / "broken.parquet"), (about, tmp_path / "gone.parquet")]
    assert curves.lines(found + gone, "utf-8")[-1] == "  arch+norm  ▇│▇  0.2500 at 8, 0.2500 at 16"
    assert curves.lines(gone, "utf-8") == [] == curves.lines([], "utf-8")
    assert curves.lines(runs({8: 0.25}, metric="accuracy")[-1:], "utf-8") == []


def test_a_run_ends_with_its_curve_whether_it_was_done_before_or_not(tmp_path, toys_alone):
    arguments = ["run", "--task", "toy-walk", "--arch", "toy-table", "--protocol", "quick", "--set", "train.steps=2"]
    arguments += ["--seeds", "0", "--results", str(tmp_path)]
    outputs = [CliRunner(charset=charset).invoke(main, arguments).stdout for charset in ("utf-8", "utf-8", "ascii")]
    first, again, plain = ([line for line in output.splitlines() if "toy-table+toy-nothing  " in line] for output in outputs)
    assert len(first) == len(plain) == 1 and first == again
    assert "│" in first[0] and plain[0].isascii() and "|" in plain[0]
    for output in outputs:
        assert output.index("results") if "results" in output else True
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
    found = BoardValues.of(Values.of(value for path in paths for value in raw_values(path, TVD)))
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
    assert [value.length for value in raw_values(path, TVD)] == [8]


def test_a_file_that_describes_no_primary_metric_has_none(tmp_path):
    path = write_rows(tmp_path / "run.parquet", simulated({8: 0.5}), experiment={}, measurements=[])
    assert primary_metric(path) is None
