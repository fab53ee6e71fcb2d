"""Tests of every task of this pack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lgbench_languages
from lgbench.conformance.check import Check
from lgbench.testing import checks


@pytest.mark.parametrize("check", checks(lgbench_languages))
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def test_the_readme_has_every_task() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    named = {name for row in re.findall(r"^\| (`.*?) \|", readme, re.MULTILINE) for name in re.findall("`(.+?)`", row)}
    assert named == {task.name for task in lgbench_languages.lgbench_tasks()}


def test_every_task_has_facts_and_those_of_the_literature_their_sources() -> None:
    for task in lgbench_languages.lgbench_tasks():
        assert task.facts, task.name
        assert task.facts.sources or task.facts.kind == "random automata"
