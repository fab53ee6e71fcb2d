"""Commands that read results: of several protocols they show one and name the others; a task of a file has a short name."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from helpers.claim_files import around, write_runs
from helpers.commands import invoked

BOTH = {"arch+new": around(0.9), "arch+old": around(0.5)}


@pytest.fixture
def folder(tmp_path):
    """standard/10 has one task and one entry, and the older protocols have all of two tasks."""
    write_runs(tmp_path / "newest", {"arch+new": around(0.3)}, "alpha", protocol="standard", protocol_version=10)
    for version in (2, 9):
        for task in ("alpha", "beta"):
            write_runs(tmp_path / f"{version}", BOTH, task, protocol="standard", protocol_version=version)
    write_runs(tmp_path / "quick", BOTH, "alpha")
    write_runs(tmp_path / "changed", BOTH, "alpha", protocol="standard", protocol_version=11, changes=[("train.lr", "0.1")])
    return tmp_path


def shown(output):
    return list(dict.fromkeys(re.findall(r"protocol (.*?), task version", output)))


OTHERS = "there are also runs of standard/9, standard/2, quick/5, standard/11 train.lr=0.1: --protocol NAME"


def test_a_board_is_of_the_newest_standard_without_changes_and_the_others_are_named(folder):
    done = invoked("leaderboard", "--results", folder)
    assert shown(done.stdout) == ["standard/10"] and OTHERS in done.stdout
    done = invoked("leaderboard", "--results", folder, "--format", "csv")
    assert {row["protocol"] for row in csv.DictReader(io.StringIO(done.stdout))} == {"standard/10"} and OTHERS in done.stderr


def test_of_one_task_it_is_the_newest_with_runs_of_that_task(folder):
    assert shown(invoked("leaderboard", "--task", "beta", "--results", folder).stdout) == ["standard/9"]


def test_a_name_is_the_newest_of_its_versions_and_all_are_all(folder):
    assert shown(invoked("leaderboard", "--protocol", "quick", "--results", folder).stdout) == ["quick/5"]
    done = invoked("leaderboard", "--task", "alpha", "--protocol", "all", "--results", folder)
    assert shown(done.stdout) == ["standard/10", "standard/9", "standard/2", "quick/5", "standard/11 train.lr=0.1"]
    assert "there are also" not in done.output


def test_entries_are_compared_and_drawn_under_the_newest_protocol_that_has_them(folder):
    done = invoked("compare", "new", "old", "--task", "alpha", "--results", folder)
    assert "under standard/9" in done.stdout and "there are also runs of standard/2, quick/5" in done.stdout
    path = folder / "alpha.json"
    done = invoked("plot", "--task", "alpha", "--entry", "new,old", "--out", path, "--results", folder)
    assert "protocol standard/9" in json.dumps(json.loads(path.read_text())) and "drawn are runs of standard/9" in done.stderr
    invoked("plot", "--task", "alpha", "--out", path, "--results", folder)
    assert "protocol standard/10" in json.dumps(json.loads(path.read_text()))


def test_a_task_of_a_plugin_file_is_found_by_its_short_name(tmp_path):
    write_runs(tmp_path / "own", BOTH, "copying~d798fd1f")
    write_runs(tmp_path / "other", BOTH, "alpha")
    done = invoked("leaderboard", "--task", "copying", "--results", tmp_path, "--format", "csv")
    assert {row["board"] for row in csv.DictReader(io.StringIO(done.stdout))} == {"copying~d798fd1f"}
    write_runs(tmp_path / "edited", BOTH, "copying~0123abcd")
    refused = invoked("leaderboard", "--task", "copying", "--results", tmp_path)
    assert refused.exit_code and "may be any of copying~0123abcd, copying~d798fd1f: name one of them" in refused.stderr
