"""The runs of the page: what they are, what their footers say, how their training went."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lgbench.contracts import CURVE_METRICS
from lgbench.errors import RunFileError
from lgbench.experiment.record import ProtocolUse
from lgbench.reports.tunings import each_tuning_once, without_tuning
from lgbench.results import run_files
from lgbench.results.checksums import CHECKSUM
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import described
from lgbench.results.trainings import trainings


def run_documents(results: Results, protocols: Collection[ProtocolUse]) -> dict[str, list[dict[str, Any]]]:
    """By entry, its runs under these protocols: what they are, what their footers say, how their training went."""
    found: dict[str, list[dict[str, Any]]] = {}
    footers = _footers(results)
    for training in trainings(results):
        about, protocol = footers.get(training.run_id), training.protocol
        if about is not None and protocol in protocols:
            names = ("run_id", "task", "task_version", "seed", "diverged_step")
            run = {name: getattr(training, name) for name in names} | {"protocol": str(protocol)}
            run |= {name: _curve(training.curves.get(name, ())) for name in CURVE_METRICS}
            tuning, about = without_tuning(about)
            run |= {"measurements": [metric.key for metric in described(about)], "about": _finite(_without_metrics(about))}
            run |= {"tuning": _finite(tuning)}
            found.setdefault(training.label(results), []).append(run)
    order = ("protocol", "task", "task_version", "seed", "run_id")
    return {
        entry: each_tuning_once(sorted(own, key=lambda run: [run[name] for name in order]))
        for entry, own in sorted(found.items())
    }


def _footers(results: Results) -> dict[str, dict[str, Any]]:
    """The footer of every run. Of a run that is in several files, that of the first."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(results.names):
        with suppress(RunFileError):  # it was deleted since the results were opened
            for run_id, footer in run_files.footers(results.folder / name).items():
                found.setdefault(run_id, footer)
    return found


def _without_metrics(about: Mapping[str, Any]) -> dict[str, Any]:
    """A footer without the descriptions of metrics, which the page has once, and the checksum, which is of the file."""
    return {key: value for key, value in about.items() if key not in ("measurements", CHECKSUM)}


def _curve(points: Sequence[tuple[int, float | None]]) -> dict[str, list[Any]]:
    """Steps and values of a training; four significant digits are more than a small chart shows."""
    values = [None if value is None or not math.isfinite(value) else float(f"{value:.4g}") for _, value in points]
    return {"steps": [step for step, _ in points], "values": values}


def _finite(content: Any) -> Any:
    """Footers are read with a parser that takes NaN; JSON has no word for it."""
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content
