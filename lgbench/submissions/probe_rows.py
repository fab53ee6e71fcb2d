"""Whether the rows of probes can be those of an experiment.

Which layers and heads a model has is known once it is built, and some attentions have no weights, so no row of a probe has to
be there. A rerun says whether all are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lgbench.experiment.experiment import Experiment
from lgbench.experiment.lengths import board_lengths
from lgbench.measurement.extent import probes_of
from lgbench.measurement.probed_contexts import CONTEXTS
from lgbench.results.metrics import Metric
from lgbench.results.rows import is_in_distribution

MAX_EXAMPLES = 3
"""How many wrong rows are named."""
MAX_ROWS = 2**17
"""Of probes in one run."""


def parted(experiment: Experiment, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of probes, and all others."""
    names = pa.array([measurement.name for measurement in probes_of(experiment.task, experiment.measurements)], pa.string())
    of_probes = pc.is_in(table["metric"], value_set=names)
    return table.filter(of_probes), table.filter(pc.invert(of_probes))


def wrong_probe_rows(experiment: Experiment, rows: pa.Table) -> Iterator[str]:
    """A sentence for each thing that is wrong with the rows of probes."""
    if rows.num_rows > MAX_ROWS:
        yield f"it has {rows.num_rows} rows of probes, and a run has {MAX_ROWS} at most"
        return
    probes = probes_of(experiment.task, experiment.measurements)
    metrics = {probe.name: Metric.of(probe) for probe in probes}
    lengths = set(board_lengths(experiment.task, experiment.train, experiment.evaluate))
    weights = {"raw", *experiment.record.averagers}
    contexts = min(CONTEXTS, experiment.evaluate.contexts)
    places: Counter[tuple[object, ...]] = Counter()
    wrong: list[str] = []
    for row in rows.select([name for name in rows.column_names if name not in ("changes", "plugins")]).to_pylist():
        metric, length = metrics[row["metric"]], row["length"]
        place = tuple(row[name] for name in ("weights", "metric", "step", "length", "layer", "head"))
        places[place] += 1
        fits = (
            row["weights"] in weights
            and row["step"] == experiment.train.steps
            and length in lengths
            and _counted(row["layer"], row["head"])
            and row["metric_version"] == metric.version
            and row["in_distribution"] == is_in_distribution(experiment, length)
            and row["on_boards"] is True
            and places[place] == 1
            and row["n"] is not None
            and 0 <= row["n"] <= contexts
            and _is_possible(row["value"], row["n"], metric)
        )
        if not fits:
            wrong.append(", ".join(f"{name} {row[name]}" for name in (*_NAMED, "value", "n")))
    if wrong:
        more = f" and {len(wrong) - MAX_EXAMPLES} more rows" if len(wrong) > MAX_EXAMPLES else ""
        yield f"its rows of probes have what no run has: {'; '.join(wrong[:MAX_EXAMPLES])}{more}"


_NAMED = ("weights", "metric", "length", "layer", "head")


def _counted(layer: int | None, head: int | None) -> bool:
    """Whether they are numbers from 1, and a head is that of a layer."""
    return (layer is None or layer >= 1) and (head is None or (layer is not None and head >= 1))


def _is_possible(value: float | None, n: int, metric: Metric) -> bool:
    if value is None or n == 0:
        return value is None and n == 0
    slack = 1e-6 * max(1.0, abs(value))
    return math.isfinite(value) and metric.lowest - slack <= value <= metric.highest + slack
