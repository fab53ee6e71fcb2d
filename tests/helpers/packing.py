"""Submission files of any runs, as `lgbench submit` writes them of honest ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lgbench.results import run_files, submission_files
from lgbench.results.run_schema import CHECKSUM, METADATA_KEY, sealed
from lgbench.results.submission_files import PackedRun, SubmittedRun, written

NAMES = ("task", "family", "entry", "seed", "run_id")


def together(paths: Iterable[Path], folder: Path) -> Path:
    """A submission file of run files, whatever they say."""
    name, content = packed(paths)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def packed(paths: Iterable[Path]) -> tuple[str, bytes]:
    """The name and the bytes of that file."""
    runs: list[Any] = []
    for path in paths:
        rows = run_files.read(path)
        first = rows.slice(0, 1).to_pylist()[0]
        record: Any = SimpleNamespace(**{name: first[name] for name in NAMES})
        runs.append(SubmittedRun(record, run_files.metadata(path), rows))
    return written(runs)


def repacked(
    path: Path,
    to: Path,
    runs: Callable[[list[PackedRun]], Any] = lambda runs: None,
    rows: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    table: Callable[[bytes], bytes] = lambda table: table,
    **options: Any,
) -> Path:
    """A copy of a submission file with changes to its runs made in place, its rows or its table, and a checksum that fits."""
    found = run_files.checked(path).packed()
    runs(found)
    out = pa.BufferOutputStream()
    changed = rows(run_files.read(path))
    with pq.ParquetWriter(out, changed.schema.remove_metadata(), compression="zstd", **options) as writer:
        writer.write_table(changed.replace_schema_metadata(None))
        said = json.dumps({"runs": len(found), CHECKSUM: "0" * 64}).encode()
        writer.add_key_value_metadata({submission_files.KEY: table(submission_files.packed(found)), METADATA_KEY: said})
    to.write_bytes(sealed(out.getvalue().to_pybytes()))
    return to
