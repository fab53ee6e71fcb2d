"""Submission files: the runs of a submission in one Parquet file, written once, whole.

Half of a small run file describes columns. Runs in one file take half the space and open many times faster.

A submission file has the rows of its runs, one run after another, and a table with one line of JSON per run, compressed and in
Base64: Parquet does not compress metadata, and the metadata of the runs of one submission are nearly equal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Meta

from lgbench.results.run_schema import CHECKSUM, METADATA_KEY, SCHEMA, ZEROS, sealed

KEY = b"lgbench.footers"
"""Key of the table in the metadata of a submission file. Run files have no such key."""

GROUP_ROWS = 2**17
"""Rows of a row group, for readers with little memory."""

_LENGTH_BYTES = 4
"""Size of the number before the compressed table: its length without compression."""


class PackedRun(msgspec.Struct, frozen=True, rename={"metadata": "footer"}):
    """A run within a file: a line of the table of a submission file, or the only run of a run file.

    Submission files have the metadata under the key "footer", as published.
    """

    run_id: str
    rows: Annotated[int, Meta(ge=1)]
    """Number of rows."""
    content: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """:func:`digest` of metadata and rows; empty for a run file."""
    metadata: dict[str, Any]
    """Metadata as in the run file, with the checksum of the run file."""


def written(runs: Iterable[tuple[Mapping[str, Any], pa.Table]]) -> tuple[str, bytes]:
    """Name and bytes of the submission file of runs, given as metadata and rows in the schema of run files."""
    lines, tables = [], []
    for about, rows in sorted(runs, key=_order):
        lines.append(PackedRun(rows["run_id"][0].as_py(), rows.num_rows, digest(about, rows), dict(about)))
        tables.append(rows.cast(SCHEMA).replace_schema_metadata(None))
    return _name(lines), _serialized(pa.concat_tables(tables), lines)


def _order(run: tuple[Mapping[str, Any], pa.Table]) -> tuple[str, str, int, str]:
    """Sort key: runs of one task and entry stand together."""
    about, rows = run[0]["experiment"], run[1]
    return about["task"], about["entry"], about["seed"], rows["run_id"][0].as_py()


def _name(runs: Sequence[PackedRun]) -> str:
    """Family, entry, and 16 hexadecimal digits of a hash of all contents."""
    families, entries = (sorted({run.metadata["experiment"][name] for run in runs}) for name in ("family", "entry"))
    of = families[0] if len(families) == 1 else f"{len(families)}-families"
    by = entries[0] if len(entries) == 1 else f"{len(entries)}-entries"
    contents = "".join(sorted(run.content for run in runs))
    return f"{of}.{by}.{hashlib.sha256(contents.encode()).hexdigest()[:16]}.parquet"


def packed(runs: Iterable[PackedRun]) -> bytes:
    """Table of the metadata of runs."""
    text = "".join(json.dumps(msgspec.to_builtins(run), separators=(",", ":")) + "\n" for run in runs).encode()
    compressed: bytes = pa.Codec("zstd", compression_level=9).compress(text, asbytes=True)
    return base64.b64encode(len(text).to_bytes(_LENGTH_BYTES, "big") + compressed)


def lines(table: bytes) -> list[bytes]:
    """JSON of each run of a table. Raises ValueError with the reason for a broken table."""
    try:
        raw = base64.b64decode(table, validate=True)
        size = int.from_bytes(raw[:_LENGTH_BYTES], "big")
        text: bytes = pa.Codec("zstd").decompress(raw[_LENGTH_BYTES:], size, asbytes=True)
    except (binascii.Error, pa.ArrowException, OSError) as error:
        raise ValueError("its table of runs is not a compressed table") from error
    return text.splitlines()


def unpacked(table: bytes) -> list[PackedRun]:
    """Runs of a table. Raises ValueError with the reason for a broken table."""
    try:
        # The parser of Python, which takes the NaN that it writes.
        runs = [msgspec.convert(json.loads(line), PackedRun) for line in lines(table)]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a line of its table of runs is broken ({error})") from error
    if len({run.run_id for run in runs}) < len(runs):
        raise ValueError("its table of runs has a run twice")
    return runs


def digest(metadata: Mapping[str, Any], rows: pa.Table) -> str:
    """SHA-256 of the metadata and the rows of a run, independent of how a file encodes them.

    The metadata count as JSON with sorted keys and no spaces. Each column follows with its name: of numbers, a byte for each
    row that says whether it has a value, and the values, little-endian, 0 for null; of other types, its rows as JSON.
    """
    found = hashlib.sha256(_json(metadata))
    for name in rows.column_names:
        found.update(name.encode())
        column = rows[name].combine_chunks()
        if pa.types.is_primitive(column.type):
            found.update(pc.is_valid(column).to_numpy(zero_copy_only=False).tobytes())
            values = pc.fill_null(column, pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)
            found.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())
        else:
            found.update(_json(column.to_pylist()))
    return found.hexdigest()


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _serialized(rows: pa.Table, table: Sequence[PackedRun]) -> bytes:
    out = pa.BufferOutputStream()
    # Most of a file is values. Neighbouring values have bytes in common, which a byte stream split lets zstd find.
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 9,
        "use_dictionary": [name for name in _leaves() if name != "value"],
        "use_byte_stream_split": ["value"],
    }
    with pq.ParquetWriter(out, SCHEMA, **options) as writer:
        writer.write_table(rows, row_group_size=GROUP_ROWS)
        about = {"runs": len(table), CHECKSUM: ZEROS}
        writer.add_key_value_metadata({KEY: packed(table), METADATA_KEY: json.dumps(about).encode()})
    return sealed(out.getvalue().to_pybytes())


def _leaves() -> Iterator[str]:
    """Columns under their Parquet names: a map is a column of keys and a column of values."""
    for field in SCHEMA:
        parts = (".key_value.key", ".key_value.value") if pa.types.is_map(field.type) else ("",)
        yield from (field.name + part for part in parts)
