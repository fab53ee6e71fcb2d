"""Data on runs for the page: metadata and training curves."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lgbench.contracts import CURVE_METRICS
from lgbench.experiment.record import ProtocolUse
from lgbench.reports.tunings import each_tuning_once, without_tuning
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import described
from lgbench.results.run_schema import CHECKSUM
from lgbench.results.trainings import trainings


def run_documents(results: Results, protocols: Collection[ProtocolUse]) -> dict[str, list[dict[str, Any]]]:
    """By entry, metadata and training curves of its runs under these protocols."""
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
    """Metadata without the descriptions of metrics, which the page has once, and the checksum of the file."""
    return {key: value for key, value in about.items() if key not in ("measurements", CHECKSUM)}


def _curve(points: Sequence[tuple[int, float | None]]) -> dict[str, list[Any]]:
    """Steps and values of a training; four significant digits are more than a small chart shows."""
    values = [None if value is None or not math.isfinite(value) else float(f"{value:.4g}") for _, value in points]
    return {"steps": [step for step, _ in points], "values": values}


def _finite(content: Any) -> Any:
    """NaN and infinity as text, for JSON."""
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content
