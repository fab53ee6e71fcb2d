"""A protocol that tries three learning rates, in this process and in those that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lgbench.experiment.protocols import PROTOCOLS
from lgbench.results import run_files
from lgbench.results.run_files import TUNING

SETTINGS = {
    "name": "tuned",
    "version": 1,
    "longest_prefix": 16,
    "longest_set": 16,
    "submitted_seeds": 5,
    "lr_factors": (0.1, 1, 10),
}
GRID = [0.002, 0.02, 0.2]
SEEDS = [1_000_000, 1_000_001]
WORDS = ["run", "--task", "toy-walk,toy-even", "--arch", "toy-table", "--average", "toy-mean", "--protocol", "tuned"]
WORDS += ["--seeds", "0:2", "--no-compile", "--population", "1", "--device", "cpu"]
"""A grid of 12 tuning runs and 4 runs."""
REGISTER = f"""
from dataclasses import replace
from lgbench.experiment.protocols import PROTOCOLS
quick = PROTOCOLS["quick"]
train, evaluate = replace(quick.train, steps=40, batch=4, lr=0.02), replace(quick.evaluate, contexts=8, strings=8)
PROTOCOLS["tuned"] = replace(quick, train=train, evaluate=evaluate, **{SETTINGS!r})
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


def values(folder: Path) -> dict[str, tuple[object, str]]:
    """Of each run and tuning run by its path: its experiment with the tuning that chose its rate, and all bits of its rows."""
    paths = [path for place in (folder, folder / TUNING) for path in run_files.find(place)]
    return {
        str(path.relative_to(folder)): (run_files.metadata(path)["experiment"], repr(run_files.read(path).to_pylist()))
        for path in paths
    }
