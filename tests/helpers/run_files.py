"""Run files with made-up rows, and damaged ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lgbench_measurements
from lgbench.experiment.probes import is_probe
from lgbench.results import run_files
from lgbench.results.metrics import descriptions
from lgbench.results.run_schema import METADATA_KEY, SCHEMA, sealed


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
    """A run file of these rows, which describes the built-in metrics."""
    about = metadata or {"experiment": {}, "measurements": measured_by_all()}
    run_files.write(path, pa.Table.from_pylist(list(rows), schema=SCHEMA), about)
    return path


def write_sealed(path: Path, rows: pa.Table, footer: bytes | None, **options: Any) -> Path:
    """A file with a right checksum, whatever its columns and the text of its footer are."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, rows.schema.remove_metadata(), **options) as writer:
        writer.write_table(rows.replace_schema_metadata(None))
        own = {} if footer is None else {METADATA_KEY: footer}
        writer.add_key_value_metadata(own | {b"seal": b'"checksum": "%s"' % (b"0" * 64)})
    path.write_bytes(sealed(out.getvalue().to_pybytes()))
    return path


def corrupt(path: Path) -> None:
    """Ruin the first pages and leave the footer alone, with a checksum that fits."""
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(resealed(bytes(content)))


def resealed(content: bytes) -> bytes:
    """The bytes of a run file with a checksum that fits, as somebody makes it who means harm."""
    return sealed(re.sub(rb'(?<="checksum": ")[0-9a-f]{64}(?=")', b"0" * 64, content))
