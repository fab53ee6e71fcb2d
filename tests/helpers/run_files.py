"""Run files with made-up rows, and damaged ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import lgbench_measurements
from lgbench.experiment.components import is_probe
from lgbench.results import file_format, run_files
from lgbench.results.file_format import SCHEMA, sealed
from lgbench.results.metrics import descriptions


def simulated(values: Mapping[int, float | None], trained: int = 8, **columns: Any) -> list[dict[str, Any]]:
    """Rows of a run from {length: value}; keywords replace any column. Boards show what they show of the built-in tasks.

    The run id changes with everything that makes another run.
    """
    shown = {length for length in values if length > 0 and length & (length - 1) == 0} | {trained, max(values, default=0)}
    same = {
        "entry": "arch+norm",
        "task": "alpha",
        "task_version": 1,
        "protocol": "quick",
        "protocol_version": 1,
        "changes": [],
        "plugins": [],
        "metric_version": 1,
        "seed": 0,
        "weights": "raw",
        "metric": "tvd",
        "step": 5,
        "n": 4,
    } | columns
    same.setdefault("family", same["task"])
    names = ("entry", "task", "task_version", "protocol", "protocol_version", "changes", "plugins", "seed")
    same.setdefault("run_id", hashlib.sha256(repr([same[name] for name in names]).encode()).hexdigest()[:16])
    return [
        same | {"length": length, "value": value, "in_distribution": length <= trained, "on_boards": length in shown}
        for length, value in values.items()
    ]


def measured_by_all() -> list[dict[str, Any]]:
    """How run files describe the built-in measurements that every run has, which are those that are no probes."""
    return descriptions(each for each in lgbench_measurements.lgbench_measurements() if not is_probe(each))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], **metadata: Any) -> Path:
    """A run file of these rows, whose metadata label its run as the rows do; a submission file of several runs.

    Without `metadata` it describes the built-in metrics.
    """
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(row)
    about = metadata or {"measurements": measured_by_all()}
    runs = [(_labelled(about, own), pa.Table.from_pylist(own, schema=SCHEMA)) for own in by_run.values()]
    if len(runs) == 1:
        ((metadata_of_run, table),) = runs
        run_files.write(path, table, metadata_of_run)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file_format.submission(runs)[1])
    return path


TRAIN = {"batch": 1, "lr": 0.001, "weight_decay": 0.0, "warmup": 0.0, "average_every": 1}
EVALUATE = {"contexts": 4, "strings": 4}
PARTS = {"architecture": "arch", "norm": "norm", "attention": None, "position": None, "optimizer": "adamw", "options": []}


def _labelled(about: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Metadata with the names, versions, last step and training length of the rows of one run, and settings nobody asks for."""
    names = ("task", "family", "task_version", "entry", "seed")
    given, weights = about.get("experiment", {}), {row["weights"] for row in rows}
    labels = {name: rows[0][name] for name in names}
    labels["protocol"] = {"name": rows[0]["protocol"], "version": rows[0]["protocol_version"], "changes": rows[0]["changes"]}
    labels["averagers"] = sorted(weights.union(given.get("averagers", ())) - {"raw", "chance"})
    labels["plugins"] = [_plugin(name, version, rows) for name, version in {used for row in rows for used in row["plugins"]}]
    steps = max([row["step"] for row in rows if row["on_boards"]], default=0)
    trained = {
        "steps": steps,
        "max_length": max([row["length"] for row in rows if row["length"] and row["in_distribution"]], default=0),
    }
    sections = {
        "train": {**TRAIN, **given.get("train", {}), **trained},
        "evaluate": {**EVALUATE, **given.get("evaluate", {})},
    }
    return {**about, "experiment": {**PARTS, **given, **labels, **sections}}


def _plugin(name: str, version: str, rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A plugin that decides the numbers of those weights whose rows name it."""
    version, _, source = version.partition(" ")
    every = {row["weights"] for row in rows}
    own = {row["weights"] for row in rows if name in dict(row["plugins"])}
    provides = ["task"] if own == every else [f"averager:{weights}" for weights in own]
    return {"name": name, "version": version, "source": source, "provides": provides}


def corrupt(path: Path) -> None:
    """Ruin the first pages and leave the metadata alone, with a checksum that fits."""
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(resealed(bytes(content)))


def resealed(content: bytes) -> bytes:
    """The bytes of a run file with a checksum that fits, as somebody makes it who means harm."""
    return sealed(re.sub(rb'(?<="checksum": ")[0-9a-f]{64}(?=")', b"0" * 64, content))
