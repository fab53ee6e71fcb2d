"""Numbers of logged runs: of a page of the notebook, and of a run file."""

import math

from helpers.commands import changing
from lgbench.contracts import SOUNDNESS
from lgbench.results import run_files

SETTINGS = {
    "train.steps": 60,
    "train.batch": 2,
    "train.average_every": 5,
    "evaluate.contexts": 4,
    "evaluate.max_length": 16,
    "evaluate.points": 2,
    "evaluate.point_contexts": 2,
}
WORDS = changing(SETTINGS)


def numbers_of(page):
    """Name and step of each number of a page, with its value. Each is there once."""
    found = [((name, line[1]), value) for line in page if line[0] == "log" for name, value in line[2].items()]
    assert len(dict(found)) == len(found)
    return dict(found)


def numbers_in(path):
    """Name and step of each number of a run file, with its value."""
    rows = [row for row in run_files.read(path).to_pylist() if row["weights"] != "chance" and row["metric"] not in SOUNDNESS]
    return {
        (row["metric"] if row["length"] is None else f"{row['metric']}/{row['weights']}/{row['length']}", row["step"]): row[
            "value"
        ]
        for row in rows
        if row["value"] is not None and math.isfinite(row["value"])
    }
