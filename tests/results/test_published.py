"""Own runs beside published ones: ranked with them under one protocol, below them under any other."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile

import hatchling.build
import pytest
from helpers.claim_files import around, write_runs
from helpers.commands import invoked
from helpers.folders import PUBLISHED, ROOT
from helpers.run_files import simulated, write_rows

from lgbench import UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.reports.boards import notes
from lgbench.results import published
from lgbench.results.leaderboard import Results
from lgbench.results.published import shown

NOW = PROTOCOLS["standard"].version
STANDARD = f"standard/{NOW}"


def runs(folder, entries, task="alpha", protocol="standard", version=NOW, **columns):
    return write_runs(folder, entries, task, protocol=protocol, protocol_version=version, **columns)


@pytest.fixture
def own(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def filed(tmp_path):
    """Published runs of two entries: of alpha under three protocols, of beta under an earlier version alone."""
    folder = tmp_path / "leaderboards" / "runs"
    for name, task, protocol, version in (
        ("alpha", "alpha", "standard", NOW),
        ("earlier", "alpha", "standard", NOW - 1),
        ("long", "alpha", "long", 1),
        ("beta", "beta", "standard", NOW - 1),
    ):
        runs(folder / name, {"arch+old": around(0.5), "arch+good": around(0.2, sign=-1)}, task, protocol, version)
    return folder


def board_of(own, filed, task="alpha", protocol=None, **options):
    (board,) = shown(Results(own, filed), "tvd", task, protocol, **options)[0]
    return board


def test_an_own_entry_of_the_protocol_is_ranked_and_marked(own, filed, tmp_path):
    runs(own, {"arch+new": around(0.3)})
    together = tmp_path / "together"
    runs(together, {"arch+new": around(0.3), "arch+old": around(0.5), "arch+good": around(0.2, sign=-1)})
    (expected,) = Results(together).boards("tvd", "alpha")
    board = board_of(own, filed)
    assert board.rows == expected.rows and [row.entry for row in board.rows] == ["arch+good", "arch+new", "arch+old"]
    assert (str(board.protocol), board.own, board.unranked) == (STANDARD, ("arch+new",), ())


def test_own_entries_of_other_protocols_are_below_with_their_own_means_and_change_no_rank(own, filed):
    runs(own / "short", {"arch+new": around(0.1), "arch+old": around(0.4)}, protocol="short", version=1)
    runs(own / "changed", {"arch+new": around(0.05)}, changes=[("train.lr", "0.1")])
    board = board_of(own, filed)
    (alone,) = Results(filed).boards("tvd", "alpha", STANDARD)
    assert board.rows == alone.rows and board.own == ()
    names = ["arch+new (short/1)", "arch+old (short/1)", f"arch+new ({STANDARD} train.lr=0.1)"]
    assert [row.entry for row in board.unranked] == names
    expected = [row for each in Results(own).boards("tvd", "alpha") for row in each.rows]
    assert [row.cells for row in board.unranked] == [row.cells for row in expected]
    assert {(row.tier, row.rank_interval, row.against) for row in board.unranked} == {(None, None, None)}


def test_a_mean_is_shown_if_it_is_over_the_lengths_of_the_board_alone(own, filed):
    values = {2: 0.9, 8: 0.1, 16: 0.2, 64: 0.9}
    write_rows(own / "a.parquet", simulated(values, entry="mine", protocol="external"))
    (row,) = board_of(own, filed).unranked
    assert {(cell.kind, cell.length): cell.mean for cell in row.cells} == {
        ("length", 8): 0.1,
        ("length", 16): 0.2,
        ("ID", None): 0.1,
    }


def test_each_family_has_its_newest_protocol_with_published_runs(own, filed):
    runs(own, {"arch+new": around(0.3)}, "beta")
    found = shown(Results(own, filed), "tvd")[0]
    assert [(board.name, str(board.protocol)) for board in found] == [("alpha", STANDARD), ("beta", f"standard/{NOW - 1}")]
    assert [[row.entry for row in board.unranked] for board in found] == [[], [f"arch+new ({STANDARD})"]]
    assert shown(Results(own, filed), "tvd", "beta", "standard")[1] == f"standard/{NOW - 1}"


def test_own_runs_of_part_of_a_family_or_of_another_version_are_not_below(own, filed):
    for task in ("gamma-1", "gamma-2"):
        runs(filed / task, {"arch+old": around(0.5)}, task, family="gamma")
    runs(own / "one", {"arch+new": around(0.3)}, "gamma-1", "short", 1, family="gamma")
    runs(own / "version", {"arch+new": around(0.3)}, "gamma-2", "short", 1, family="gamma", task_version=2)
    board = board_of(own, filed, "gamma")
    assert board.unranked == ()
    assert board.incomplete == ("arch+new (short/1): left out, with runs of other versions of the tasks of gamma",)
    assert [row.entry for row in board_of(own, filed, "gamma-1").unranked] == ["arch+new (short/1)"]
    assert board_of(own, filed, "gamma-2").unranked == ()


def test_a_published_run_of_ones_own_counts_once(own, filed):
    runs(own, {"arch+old": around(0.5, seeds=3)})
    board = board_of(own, filed)
    (alone,) = Results(filed).boards("tvd", "alpha", STANDARD)
    assert board.rows == alone.rows and board.own == ("arch+old",)


def test_numbers_without_a_meaning_are_called_so(own, filed):
    rows = simulated({8: 0.1, 16: 0.1}, entry="mine", protocol="external")
    write_rows(own / "a.parquet", rows + simulated({16: 1.0}, entry="mine", protocol="external", metric="looks_ahead"))
    reason = "its answers change with what comes after them on seed 0"
    assert board_of(own, filed).unsound == (f"the numbers of mine (external/1) have no meaning: {reason}",)


def test_without_own_runs_the_published_ones_are_shown_and_the_folder_is_named(own, filed):
    results = Results(own, filed)
    assert results.left_out == [f"no results folder {str(own)!r}; `lgbench run` makes one, and --results names another"]
    assert [row.entry for row in board_of(own, filed).rows] == ["arch+good", "arch+old"]


def test_published_runs_are_those_of_the_checkout_or_of_the_package(tmp_path, monkeypatch):
    assert published.published() == PUBLISHED
    monkeypatch.setattr(published, "ROOT", tmp_path)
    with pytest.raises(UsageError, match="the published runs are not here: a checkout of lgbench has them, and so has"):
        published.published()
    package = tmp_path / published.PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert published.published() == package


@pytest.fixture
def command(own, filed, tmp_path, monkeypatch):
    """Standard output of a command with published runs."""
    monkeypatch.setattr(published, "ROOT", tmp_path)
    runs(own / "ranked", {"arch+new": around(0.3)})
    runs(own / "short", {"arch+other": around(0.1)}, protocol="short", version=1)

    def run(*words):
        done = invoked(*words, "--with", "published", "--results", own)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_a_table_marks_own_entries_and_says_how_to_have_the_others_ranked(command):
    out = command("leaderboard", "--task", "alpha")
    words = [word for word in out.split() if word.startswith("arch+") or word == "ranked:"]
    assert words[:5] == ["arch+good", "arch+new", "arch+old", "ranked:", "arch+other"]
    assert "arch+new *" in out and "arch+old *" not in out and "arch+other (short/1)" in out
    assert "Entries with * have runs of yours." in out
    assert "`lgbench run --task alpha --arch arch+other --protocol standard --seeds 0:5` makes runs to be ranked." in out
    assert f"protocol {STANDARD}" in out


def test_the_command_for_an_entry_of_a_plugin_file_has_a_place_for_the_file(command, own):
    runs(own / "file", {"arch+my-norm~594c5056": around(0.1)}, protocol="short", version=1)
    out = command("leaderboard", "--task", "alpha")
    assert (
        "--arch arch+my-norm~594c5056,arch+other --plugin FILE --protocol standard --seeds 0:5` makes runs to be ranked" in out
    )
    assert "FILE is your plugin file." in out


def test_the_command_for_ranked_runs_can_be_run_as_printed(own, filed):
    runs(filed / "tomita", {"transformer+pre-norm": around(0.5)}, "tomita-1")
    runs(own, dict.fromkeys(["transformer+post-norm", "transformer+post-norm@ema"], around(0.1)), "tomita-1", "short", 1)
    write_rows(own / "a.parquet", simulated({16: 0.1}, task="tomita-1", entry="mine", protocol="external"))
    (printed,) = re.findall("`(lgbench run .*)`", "\n".join(notes(board_of(own, filed, "tomita-1"))))
    done = invoked(*printed.split()[1:], "--dry-run", "--results", own)
    assert done.exit_code == 0 and "5 runs" in done.output, done.output


def test_markdown_csv_and_json_have_the_entries_below_too(command):
    markdown = command("leaderboard", "--task", "alpha", "--format", "markdown")
    assert "| **arch+new** * |" in markdown and "| - | - | `arch+other (short/1)` |" in markdown
    lines = list(csv.DictReader(io.StringIO(command("leaderboard", "--task", "alpha", "--format", "csv"))))
    ranked = [("arch+good", STANDARD), ("arch+new", STANDARD), ("arch+old", STANDARD)]
    assert list(dict.fromkeys((line["entry"], line["protocol"]) for line in lines)) == [*ranked, ("arch+other", "short/1")]
    assert [{line["tier"] for line in lines if line["entry"] == own} for own in ("arch+old", "arch+other")] == [{"3"}, {""}]
    (board,) = json.loads(command("leaderboard", "--task", "alpha", "--format", "json"))["boards"]
    assert board["own"] == ["arch+new"] and [row["entry"] for row in board["unranked"]] == ["arch+other (short/1)"]


def test_a_note_says_that_new_runs_are_of_a_newer_protocol_or_that_nothing_is_published(own, filed):
    runs(own, {"arch+new": around(0.3)}, "beta")
    said = notes(board_of(own, filed, "beta"))
    assert "No entry of yours is ranked here." in said
    run = "`lgbench run --task beta --arch arch+new --protocol standard --seeds 0:5`"
    assert f"{run} is of {STANDARD} by now: run the entries that you compare with, too." in said
    runs(own, {"arch+new": around(0.3)}, "delta", "short", 1)
    assert "No published run is of delta and short/1." in notes(board_of(own, filed, "delta"))
    assert "No published run is of alpha and short/1." not in notes(board_of(own, filed))


def test_a_plot_has_own_entries_among_the_published_ones(command, own, tmp_path):
    runs(own / "many", {f"arch+mine-{n}": around(0.1 + n / 100) for n in range(9)}, protocol="short", version=1)
    path = tmp_path / "alpha.json"
    command("plot", "--task", "alpha", "--out", path)
    drawn = {row["entry"] for name, rows in json.loads(path.read_text())["datasets"].items() if "cells" in name for row in rows}
    assert {"arch+new", "arch+good", "arch+old"} < drawn and len(drawn) == 8
    command("plot", "--task", "alpha", "--entry", "other,old", "--out", path)
    drawn = {row["label"] for name, rows in json.loads(path.read_text())["datasets"].items() if "cells" in name for row in rows}
    assert drawn == {"arch+other (short/1)", "arch+old"}


def test_only_entries_of_one_protocol_are_compared(command, own, tmp_path):
    assert f"under {STANDARD}" in command("compare", "new", "old", "--task", "alpha")
    done = invoked("compare", "other", "old", "--task", "alpha", "--with", "published", "--results", own)
    assert done.exit_code and "have no seed in common on any board; run both on one task, under one protocol" in done.stderr


def test_the_page_has_the_published_runs_too(command, tmp_path):
    command("site", "--out", tmp_path / "site")
    page = "".join(path.read_text() for path in (tmp_path / "site").rglob("*") if path.is_file())
    assert "arch+new" in page and "arch+good" in page


@pytest.mark.slow
def test_the_package_gives_the_newest_boards_of_the_checkout_in_at_most_5_mb(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "leaderboards" / "published")
    wheel = tmp_path / hatchling.build.build_wheel(str(tmp_path))
    assert wheel.stat().st_size <= 5e6
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    packaged, checkout = (Results(tmp_path / "none", folder) for folder in (tmp_path / "installed", PUBLISHED))
    for metric in ("tvd", "accuracy", "roc_auc"):
        boards = shown(packaged, metric)[0]
        assert boards == shown(checkout, metric)[0] and boards
    every = "select distinct task, entry from results where protocol = 'standard' order by all"
    filed, kept = (Results(folder).connection.execute(every).fetchall() for folder in (PUBLISHED, tmp_path / "installed"))
    assert kept == filed
    assert not Results(PUBLISHED, tmp_path / "installed").left_out
