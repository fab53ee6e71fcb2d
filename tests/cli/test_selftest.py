"""The selftest of a GPU, whole on a CPU in its place."""

from __future__ import annotations

import re

import pytest
import torch
from helpers.commands import invoked

from lgbench import selftest
from lgbench.extensions.registry import Registry

TITLES = [
    "The numbers of a CPU, with every norm scheme on one task, and four on every task",
    "Captured steps against plain ones",
    "Memory against the estimate",
    "Pace of populations",
    "bfloat16 beside float32",
    "Set complement under standard",
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoked("selftest")
    assert result.exit_code == 2 and "device 'cuda' cannot be used here" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_every_part_runs_on_a_cpu_and_stands_in_the_report(tmp_path):
    result = invoked("selftest", "--device", "cpu", "--small", "--out", tmp_path / "report.md")
    assert result.exit_code == 0, result.output
    report = (tmp_path / "report.md").read_text()
    assert re.findall("^## (.*): holds$", report, re.MULTILINE) == TITLES
    assert re.search(r"\| dyck-2-5 \| 3 \| [\d,]+ \| [\d.]+% \|", report)
    assert len(re.findall(r"^\| transformer.* \| \d \| 0\.\d+ \|$", report, re.MULTILINE)) == 4
    assert set(re.findall(r"^\| [\w-]+ \| transformer\+(\S+) ", report, re.MULTILINE)) == {*Registry.load().norms.names()}


def test_a_part_that_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    def broken(self):
        raise RuntimeError("out of order")

    for name in ("same_numbers", "captured", "pace", "standard"):
        monkeypatch.setattr(selftest.Selftest, name, broken)
    result = invoked("selftest", "--device", "cpu", "--small", "--out", tmp_path / "report.md")
    assert result.exit_code == 1 and "some part does not hold on cpu" in result.stderr
    report = (tmp_path / "report.md").read_text()
    assert report.count(": FAILS") == 4 and report.count("RuntimeError: out of order") == 4
    assert "## Memory against the estimate: holds" in report
