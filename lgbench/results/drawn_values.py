"""The values of single run files that `lgbench run` draws, read without DuckDB, which a run does not import.

The rows are those that sql/values.sql chooses for a board, of the raw weights alone. The choice stands in both places; the
decision "The curves of a run choose their rows without DuckDB" says why, and tests/test_drawn_values.py compares the two.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from lgbench.contracts import PRIMARY_METRIC
from lgbench.results import run_files
from lgbench.results.columns import Value
from lgbench.results.metrics import Metric, described

READ = ("entry", "seed", "task", "length", "in_distribution", "value", "diverged_step")


def primary_metric(path: Path) -> Metric | None:
    """The primary metric as a run file describes it, None if it does not. Raises RunFileError."""
    return next((metric for metric in described(run_files.metadata(path)) if metric.name == PRIMARY_METRIC), None)


def raw_values(path: Path, metric: Metric) -> list[Value]:
    """The values of the raw weights in a run file, at the lengths that boards show, at the end of the training."""
    rows = run_files.read(path)
    same = (pc.field("metric") == metric.name) & (pc.field("metric_version") == metric.version)
    last = pc.max(rows.filter(pc.field("length").is_valid())["step"])
    same &= pc.field("step") == last
    rows = rows.filter(same & (pc.field("weights") == "raw") & pc.field("on_boards"))
    found = zip(*(rows[name].to_pylist() for name in READ), strict=True)
    return [Value(*row)._replace(diverged=step is not None) for *row, step in found]
