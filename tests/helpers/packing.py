"""Submission files of any runs, as `lgbench submit` writes them of honest ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lgbench.results import file_format, run_files
from lgbench.results.file_format import CHECKSUM, METADATA_KEY, PackedRun, sealed, submission


def together(paths: Iterable[Path], folder: Path) -> Path:
    """A submission file of run files, whatever they say."""
    name, content = packed(paths)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def packed(paths: Iterable[Path]) -> tuple[str, bytes]:
    """The name and the bytes of that file."""
    return submission((run_files.metadata(path), run_files.read(path)) for path in paths)


def repacked(
    path: Path,
    to: Path,
    runs: Callable[[list[PackedRun]], Any] = lambda runs: None,
    rows: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    table: Callable[[bytes], bytes] = lambda table: table,
    **options: Any,
) -> Path:
    """A copy of a submission file with changes to its runs made in place, its rows or its table, and a checksum that fits."""
    found = run_files.checked(path).runs()
    runs(found)
    out = pa.BufferOutputStream()
    changed = rows(run_files.read(path))
    with pq.ParquetWriter(out, changed.schema.remove_metadata(), compression="zstd", **options) as writer:
        writer.write_table(changed.replace_schema_metadata(None))
        said = json.dumps({"runs": len(found), CHECKSUM: "0" * 64}).encode()
        writer.add_key_value_metadata({file_format.RUNS_KEY: table(file_format.packed(found)), METADATA_KEY: said})
    to.write_bytes(sealed(out.getvalue().to_pybytes()))
    return to
