"""The published table of coverage, which a benchmark simulates."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]
PATH = ROOT / "benchmarks" / "coverage.csv"


def test_the_table_of_the_documentation_is_that_of_the_simulation():
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "coverage.py"))
    assert benchmark["table"](PATH) in (ROOT / "docs" / "explanation" / "statistics.md").read_text(encoding="utf-8")


def test_the_chosen_test_alone_covers_wide_and_narrow_pairs_where_both_entries_are_sound():
    with PATH.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["errors"] in ("normal", "as on the boards")]
    holds = {
        test: all(0.93 <= float(line[end]) <= 0.97 for line in lines if line["test"] == test for end in ("least", "most"))
        for test in np.unique([line["test"] for line in lines])
    }
    assert [test for test, held in holds.items() if held] == ["ordinary paired t"]
