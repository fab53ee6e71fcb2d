"""Claims and run files for their tests, in which the truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.run_files import simulated, write_rows
from lgbench.experiment.protocols import PROTOCOLS

VERSION = PROTOCOLS["quick"].version
QUICK = f"quick/{VERSION}"

CLAIM = """
claim = "The new norm is better than the old one."

[source]
paper = "arXiv 0000.00000"
title = "A new norm"
place = "table 2"

[runs]
tasks = ["alpha"]
seeds = 5
protocols = ["quick"]

[[tests]]
entry = "arch+new"
against = "arch+old"
"""

NOISE = (0.01, -0.008, 0.003, 0.006, -0.011, 0.009, -0.004, 0.002, -0.007, 0.0)
"""Of seeds, without pattern."""


def write_claim(folder: Path, text: str = CLAIM, name: str = "new-norm") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def write_runs(folder: Path, entries: Mapping[str, Sequence[Mapping[int, float]]], task: str = "alpha", **columns: Any) -> Path:
    """A run file for each entry and seed: the values at each length, in the order of seeds. Models are trained to length 8."""
    columns = {"protocol": "quick", "protocol_version": VERSION} | columns
    folder.mkdir(parents=True, exist_ok=True)
    for entry, runs in entries.items():
        name, _, weights = entry.partition("@")
        for seed, values in enumerate(runs):
            rows = simulated(values, entry=name, weights=weights or "raw", task=task, seed=seed, **columns)
            stem = f"{task}.{entry}.{columns['protocol']}.{columns.get('metric', 'tvd')}.{seed}"
            write_rows(folder / f"{stem}.parquet", rows)
    return folder


def around(mean: float, seeds: int = 5, sign: int = 1, spread: float = 1.0) -> list[dict[int, float]]:
    """Runs that score `mean` on average out of distribution, with some noise, and 0.05 in distribution."""
    return [{8: 0.05, 16: mean + sign * spread * noise, 32: mean + sign * spread * noise} for noise in NOISE[:seeds]]
