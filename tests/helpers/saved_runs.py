"""Runs that saved their weights, of a language and of a task with vectors, with all probes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import lgbench
from helpers.plain_training import CHEAP
from lgbench.results import run_files

SMALL = CHEAP | {"evaluate.contexts": 8, "model.layers": 1, "model.width": 16, "model.heads": 2}
HOW = {"protocol": "quick", "device": "cpu", "compile": False, "workers": 1}


class SavedRuns(NamedTuple):
    """Their folder and files. Tests must not write into it."""

    folder: Path
    language: Path
    vectors: Path

    @property
    def files(self) -> list[Path]:
        return [self.language, self.vectors]


@pytest.fixture(scope="session")
def saved_runs(tmp_path_factory: pytest.TempPathFactory) -> SavedRuns:
    folder = tmp_path_factory.mktemp("kept") / "results"
    tasks = ["dyck-1-2", "max-retrieval"]
    asked = {"average": "ema", "seeds": [0], "set": SMALL, "probe": "all", "save_weights": True, "results": folder}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LGBENCH_PLUGINS")  # runs name every loaded plugin, the packs among them
        lgbench.run(tasks, "peri-norm", **asked, **HOW)
    language, vectors = (next(folder.glob(f"{task}.*.parquet")) for task in tasks)
    return SavedRuns(folder, language, vectors)


def run_id(path: Path) -> str:
    return path.name.split(".")[-2]


def weights_of(path: Path) -> Path:
    """The file of the weights of a run."""
    (found,) = path.parent.glob(f"*.{run_id(path)}.*.safetensors")
    return found


def scores_at_the_end(path: Path) -> Mapping[tuple[object, ...], float | None]:
    """Every number that was measured of the trained model, from the run file: by weights, metric, length, layer and head."""
    rows = run_files.read(path).to_pylist()
    last = max(row["step"] for row in rows)
    keys = ("weights", "metric", "length", "layer", "head")
    return {
        tuple(row[key] for key in keys): row["value"]
        for row in rows
        if row["step"] == last and row["length"] is not None and row["weights"] != "chance"
    }
