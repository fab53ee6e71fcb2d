"""Data on the insides of models for the page: the readings of probes, by task and layer."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Any

from lgbench.experiment.record import ProtocolUse
from lgbench.results.database import Database, packaged
from lgbench.results.metrics import Metric


def inside_documents(results: Database, protocols: Collection[ProtocolUse]) -> dict[str, list[dict[str, Any]]]:
    """By entry, for each task, protocol and probe, its mean over heads and seeds at each length, a line for each layer.

    Entries whose runs have no probes are left out.
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
    """Four significant digits are more than a small chart shows."""
    values = [float(f"{value:.4g}") for *_, value, _ in rows]
    return {"layer": layer, "lengths": [row[7] for row in rows], "values": values, "seeds": max(row[9] for row in rows)}
