"""The checks of lgbench, and what the pack says of itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_pack_cases import BY_NAME

import lgbench_huggingface
from lgbench.conformance.check import Check
from lgbench.testing import checks

PACK = Path(__file__).parents[1]
FAST = ("architecture llama", "architecture hf", "plugin")
"""The others take two minutes together, so their checks are slow tests."""


GRAPH = "its training step is one graph"
"""This check takes ten seconds, and says at most that a step is not compiled."""


def is_fast(check: Check) -> bool:
    return check.thing.startswith(FAST) and check.name != GRAPH


def is_worth_it(check: Check) -> bool:
    if check.name == GRAPH:
        return check.thing in ("architecture llama", "architecture falcon-mamba")
    return check.thing != "architecture mamba" or not check.name.startswith("a seed")  # two minutes; falcon-mamba has its scan


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=() if is_fast(check) else pytest.mark.slow)
        for check in checks(lgbench_huggingface)
        if is_worth_it(check)
    ],
)
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def test_the_readme_has_every_architecture_with_its_source() -> None:
    rows = dict(re.findall(r"^\| `(.+?)` \| ([^|]+?) \|", (PACK / "README.md").read_text(), re.M))
    assert rows.keys() == BY_NAME.keys()
    for name, source in rows.items():
        title, *paper = re.findall(r"\d{4}\.\d{5}|^[^[(,]+", source)
        assert title.strip() in BY_NAME[name].about and all(each in BY_NAME[name].about for each in paper)


@pytest.mark.slow  # torch is imported anew
def test_the_library_is_not_imported_before_a_model_is_built() -> None:
    code = (
        "import sys, lgbench_huggingface; lgbench_huggingface.lgbench_architectures(); sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
