"""A measurement in one file is everywhere: in runs, on boards, in plots, on the page, in submissions and in SQL."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from helpers.commands import lgbench
from helpers.folders import TESTS
from helpers.processes import install

from lgbench import Random
from lgbench.extensions.registry import Registry


@pytest.fixture(scope="module")
def kl(tmp_path_factory):
    """Results of toys and of the measurement, which is installed as anybody's plugin."""
    folder = tmp_path_factory.mktemp("kl")
    install(folder / "site", "kl", (TESTS / "helpers" / "kl.py").read_text(), "1.0", "lgbench-kl")
    install(folder / "site", "toys", (TESTS / "toys.py").read_text(), "1.2.3", "lgbench-toys")
    install(folder / "site", "small_tasks", "from helpers.published import lgbench_tasks\n", "1.0", "lgbench-small")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "site")
        patch.setenv("LGBENCH_PLUGINS", "kl,toys,small_tasks,lgbench_measurements,lgbench_optimizers")
        patch.setattr("lgbench.execution.device.git_commit", lambda: "0123456789abcdef0123456789abcdef01234567")
        results = folder / "results"

        asked = "--task small --arch toy-table --average toy-mean --protocol short --seeds 0:5 --no-compile"
        lgbench("run", *asked.split(), "--results", results)
        yield results


@pytest.mark.slow
def test_a_run_measures_it_at_every_length_as_torch_does(kl):
    rows = json.loads(lgbench("sql", "from results where metric = 'kl'", "--format", "json", "--results", kl))
    assert {row["length"] for row in rows if row["task"] == "small-walk"} == set(range(1, 9))
    assert {row["metric_version"] for row in rows} == {1}
    task = Registry.load().tasks["small-walk"]
    batch = task.sample(4, Random(64))
    logits = torch.randn(64, 4, 3, generator=torch.Generator().manual_seed(1))
    measurement = Registry.load().measurements["kl"]
    found = measurement.of_contexts(SimpleNamespace(logits=logits, distribution=batch.distribution))
    expected = F.kl_div(logits.double().log_softmax(-1), batch.distribution.double(), reduction="none").sum(-1)
    torch.testing.assert_close(found, expected)


def test_boards_rank_by_it(kl):
    boards = json.loads(lgbench("leaderboard", "--metric", "kl", "--format", "json", "--results", kl))["boards"]
    assert boards and all(board["metric"]["name"] == "kl" for board in boards)
    means = [cell["mean"] for row in boards[0]["rows"] for cell in row["cells"] if cell["kind"] == "OOD"]
    assert means == sorted(means) and means[0] > 0
    assert "KL" in lgbench("leaderboard", "--metric", "kl", "--results", kl)


def test_without_its_plugin_boards_still_show_it(kl, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "toys,small_tasks,lgbench_measurements,lgbench_optimizers")
    assert "KL" in lgbench("leaderboard", "--metric", "kl", "--results", kl)
