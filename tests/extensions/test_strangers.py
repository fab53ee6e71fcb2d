"""A stranger's plugin is on boards, plots and the page, without being listed anywhere."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from lgbench.cli.main import main

SMALL = ("--protocol", "quick", "--set", "train.steps=3", "--set", "evaluate.contexts=4", "--set", "evaluate.max_length=16")
ENTRY = "toy-table+toy-nothing"


@pytest.fixture(scope="module")
def results(tmp_path_factory, toys_installed):
    """Runs of all toys, and the command that reads them."""
    folder = tmp_path_factory.mktemp("strangers")

    def command(*arguments):
        done = CliRunner().invoke(main, [*arguments, "--results", str(folder / "results")])
        assert done.exit_code == 0, done.output
        return done.stdout

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(toys_installed)
        patch.setenv("LGBENCH_PLUGINS", "toys,lgbench_measurements,lgbench_optimizers")
        command("run", "--task", "all", "--arch", "toy-table", "--average", "toy-mean", "--seeds", "0:3", *SMALL)
        yield folder, command


@pytest.mark.slow
def test_every_task_of_a_stranger_has_a_board_with_every_entry(results):
    _, command = results
    boards = json.loads(command("leaderboard", "--format", "json"))["boards"]
    assert {board["name"] for board in boards} >= {"toy-walk", "toy-even"}
    for board in boards:
        assert {row["entry"] for row in board["rows"]} == {ENTRY, f"{ENTRY}@toy-mean"}


@pytest.mark.slow
def test_a_stranger_can_be_compared_and_drawn(results):
    folder, command = results
    assert ENTRY in command("compare", ENTRY, f"{ENTRY}@toy-mean")
    command("plot", "--task", "toy-walk", "--out", str(folder / "walk.svg"))
    assert "toy-walk" in (folder / "walk.svg").read_text()


@pytest.mark.slow
def test_a_stranger_is_on_the_page(results):
    folder, command = results
    command("site", "--out", str(folder / "site"))
    page = (folder / "site" / "index.html").read_text()
    assert all(name in page for name in ("toy-walk", "toy-even", f"{ENTRY}@toy-mean"))
