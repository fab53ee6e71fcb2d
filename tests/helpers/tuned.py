"""A protocol that tries three learning rates, in this process and in those that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lgbench.experiment.protocols import PROTOCOLS

GRID = [0.002, 0.02, 0.2]
SEEDS = [1_000_000, 1_000_001]
REGISTER = """
from dataclasses import replace
from lgbench.experiment.protocols import PROTOCOLS
quick = PROTOCOLS["quick"]
train, evaluate = replace(quick.train, steps=40, batch=4, lr=0.02), replace(quick.evaluate, contexts=8, strings=8)
about = {"name": "tuned", "version": 1, "longest_prefix": 16, "longest_set": 16, "submitted_seeds": 5}
PROTOCOLS["tuned"] = replace(quick, train=train, evaluate=evaluate, lr_factors=(0.1, 1, 10), **about)
"""


@pytest.fixture(scope="module")
def tuned() -> Iterator[None]:
    """The protocol is known in this process."""
    exec(REGISTER)
    yield
    del PROTOCOLS["tuned"]  # type: ignore[attr-defined]


@pytest.fixture
def tuned_everywhere(tuned, toys_alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known in worker processes as well, which have the toys alone."""
    folder = tmp_path / "every interpreter"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(REGISTER)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
