"""What a stranger's plugin provides is on boards, plots and the page, without being listed anywhere."""

from __future__ import annotations

import json

import pytest
from conftest import lgbench_command

SMALL = ("--protocol", "quick", "--set", "train.steps=3", "--set", "evaluate.contexts=4", "--set", "evaluate.max_length=16")


@pytest.fixture(scope="module")
def results(tmp_path_factory, toys_installed):
    folder = tmp_path_factory.mktemp("strangers")

    def command(*arguments):
        done = lgbench_command(
            *arguments, "--results", str(folder / "results"), PYTHONPATH=str(toys_installed), LGBENCH_PLUGINS="toys"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    command("run", "--task", "all", "--arch", "toy-table", "--seeds", "0:3", *SMALL)
    return folder, command


def test_every_task_of_a_stranger_has_a_board_with_every_entry(results):
    _, command = results
    boards = json.loads(command("leaderboard", "--format", "json"))
    assert {board["name"] for board in boards} >= {"toy-walk", "toy-even"}
    for board in boards:
        assert {row["entry"] for row in board["rows"]} == {"toy-table+toy-nothing", "toy-table+toy-nothing@toy-mean"}


def test_a_stranger_can_be_compared_and_drawn(results):
    folder, command = results
    assert "toy-table+toy-nothing" in command("compare", "toy-table+toy-nothing", "toy-table+toy-nothing@toy-mean")
    command("plot", "--task", "toy-walk", "--out", str(folder / "walk.svg"))
    assert "toy-walk" in (folder / "walk.svg").read_text()


def test_a_stranger_is_on_the_page(results):
    folder, command = results
    command("site", "--out", str(folder / "site"))
    page = (folder / "site" / "index.html").read_text()
    assert all(name in page for name in ("toy-walk", "toy-even", "toy-table+toy-nothing@toy-mean"))
