"""Names and files of strangers on a terminal: it is shown what they are, and obeys none of them."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from helpers.run_files import simulated, write_rows

from lgbench.cli.main import main
from lgbench.results import run_files

HOSTILE = ("\x1b[2J", "a\nlgbench: all is well", "\x9b31m", "a\u202eb", "\u2028", "\x07\x08\x7f", "\u2066x")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
FIELDS = ("entry", "task", "family", "protocol", "weights", "metric", "run_id", "changes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sound runs, runs with each hostile text in each name and in the title of a metric, and hostile names of files."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        for entry in ("one", "two"):
            good = write_rows(folder / f"{entry}{seed}.parquet", simulated({8: 0.1, 16: seed / 9}, entry=entry, seed=seed))
    described = run_files.metadata(good)["measurements"]
    for number, text in enumerate(HOSTILE):
        for field in FIELDS:
            own = {field: [("train.lr", text)] if field == "changes" else f"tvd{text}"}
            write_rows(folder / f"{field}{number}.parquet", simulated({8: 0.1}, **own))
        for field in ("title", "label", "landmark_name"):
            own = [description | {field: text} for description in described]
            path = folder / f"{field}{number}.parquet"
            write_rows(path, simulated({8: 0.1}, entry=f"{field}{number}"), measurements=own)
        (folder / f"name{text}.parquet").write_text("no run")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["leaderboard"],
        ["leaderboard", "--format", "markdown"],
        ["leaderboard", "--task", HOSTILE[0]],
        ["leaderboard", "--metric", HOSTILE[1]],
        ["leaderboard", "--protocol", HOSTILE[2]],
        ["compare", "one", "two"],
        ["compare", "one", HOSTILE[0]],
        ["sql", "select chr(27) || '[2J' as \"a\x1b[2J\", 'a' || chr(10) || chr(155) as b"],
        ["sql", "select \x1b[2J from results"],
        ["sql", "select error(chr(27) || chr(8238))"],
        ["plot", "--out", "a\x1b[2J.json"],
        ["plot", "--entry", HOSTILE[3], "--out", "a.json"],
        ["site", "--out", "a\x9b31m"],
    ],
    ids=lambda words: " ".join(words[:2]).encode("unicode_escape").decode(),
)
def test_a_terminal_obeys_no_name_of_a_run_file_or_of_a_file(folder, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*words, "--results", str(folder)], prog_name="lgbench")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert not UNSAFE.findall(done.output)
    assert "all is well" not in [line.removeprefix("lgbench: ") for line in done.output.splitlines()]
    assert r"name\x1b[2J.parquet" in done.stderr


def test_a_results_folder_with_a_hostile_name_is_named_harmlessly(tmp_path):
    for text in HOSTILE:
        (tmp_path / text).mkdir()
        done = CliRunner().invoke(main, ["leaderboard", "--results", str(tmp_path / text)], prog_name="lgbench")
        assert done.exit_code == 2 and "no runs in" in done.output and not UNSAFE.findall(done.output)
        assert len(done.output.splitlines()) == 1
