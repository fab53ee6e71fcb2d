"""Data of the page: runs with training curves and tuning, and probe readings by task and layer."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from lgbench.contracts import CURVE_METRICS
from lgbench.experiment.record import ProtocolUse
from lgbench.results.database import Database, packaged
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric, described
from lgbench.results.run_schema import CHECKSUM
from lgbench.results.trainings import trainings


def run_documents(results: Results, protocols: Collection[ProtocolUse]) -> dict[str, list[dict[str, Any]]]:
    """Metadata and training curves of runs by entry, under the given protocols."""
    found: dict[str, list[dict[str, Any]]] = {}
    metadata: dict[str, Mapping[str, Any]] = {}
    for run_id, about in results.metadata():
        metadata.setdefault(run_id, about)  # a run may be in several files
    for training in trainings(results):
        protocol = training.protocol
        if protocol in protocols:
            about = metadata[training.run_id]
            names = ("run_id", "task", "task_version", "seed", "diverged_step")
            run = {name: getattr(training, name) for name in names} | {"protocol": str(protocol)}
            run |= {name: _curve(training.curves.get(name, ())) for name in CURVE_METRICS}
            tuning, about = without_tuning(about)
            run |= {"measurements": [metric.key for metric in described(about)], "about": _finite(_without_metrics(about))}
            run |= {"tuning": _finite(tuning)}
            found.setdefault(training.entry, []).append(run)
    order = ("protocol", "task", "task_version", "seed", "run_id")
    return {
        entry: each_tuning_once(sorted(own, key=lambda run: [run[name] for name in order]))
        for entry, own in sorted(found.items())
    }


def _without_metrics(about: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without the checksum and without descriptions of metrics, which the page has once."""
    return {key: value for key, value in about.items() if key not in ("measurements", CHECKSUM)}


def _curve(points: Sequence[tuple[int, float | None]]) -> dict[str, list[Any]]:
    """Steps and values of a training curve. Four significant digits suffice for a small chart."""
    values = [None if value is None or not math.isfinite(value) else float(f"{value:.4g}") for _, value in points]
    return {"steps": [step for step, _ in points], "values": values}


def _finite(content: Any) -> Any:
    """Content for JSON, with NaN and infinity as text."""
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content


def inside_documents(results: Database, protocols: Collection[ProtocolUse]) -> dict[str, list[dict[str, Any]]]:
    """Probe readings by entry: for each task, protocol and probe, means over heads and seeds by layer and length.

    Entries without probe readings are left out.
    """
    known = {(metric.name, metric.version): metric for metric in results.metrics}
    unranked = sorted({metric.name for metric in results.metrics if not metric.ranks})
    found: dict[str, list[dict[str, Any]]] = {}
    for (entry, task, version, number, *metric), own in groupby(
        results.rows(packaged("layers"), {"unranked": unranked}), key=lambda row: row[:6]
    ):
        about, protocol = known.get((metric[0], metric[1])), results.protocols[number]
        if about is not None and protocol in protocols:
            of = {"task": task, "task_version": version, "protocol": str(protocol), **_about(about)}
            layers = groupby(own, key=lambda row: row[6])
            found.setdefault(entry, []).append(of | {"layers": [_line(layer, list(rows)) for layer, rows in layers]})
    return found


def _about(metric: Metric) -> dict[str, Any]:
    return {"metric": metric.key, "title": metric.title}


def _line(layer: int | None, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Probe readings of one layer by length. Four significant digits suffice for a small chart."""
    values = [float(f"{value:.4g}") for *_, value, _ in rows]
    return {"layer": layer, "lengths": [row[7] for row in rows], "values": values, "seeds": max(row[9] for row in rows)}


def without_tuning(about: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Tuning in the metadata of a run file, and metadata without tuning. Metadata are untrusted: any field may be missing."""
    experiment = about.get("experiment")
    if not isinstance(experiment, dict):
        return None, dict(about)
    left = {key: value for key, value in experiment.items() if key != "tuning"}
    return experiment.get("tuning"), {**about, "experiment": left}


def each_tuning_once(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of an entry. A tuning shared by several runs of a task stays only in the first."""
    seen: set[str] = set()
    for run in runs:
        said = repr((run["protocol"], run["task"], run["task_version"], run["tuning"]))
        if said in seen:
            run["tuning"] = None
        seen.add(said)
    return runs
