"""The footers of a submission file: a table of one row a run, as lines of JSON, compressed and in Base64.

Parquet does not compress its metadata, and footers of one submission say nearly the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY = b"lgbench.footers"
"""The metadata of a submission file have the table under this key. Run files have no such key."""

MAX_RUNS = 5000
"""In one submission file."""
MAX_BYTES = 2**26
"""Of the table before it is compressed. A run has about 2,000."""

_LENGTH_BYTES = 4
"""Before the compressed table stands its length without compression, so that a reader knows how much memory it takes."""


@dataclass(frozen=True)
class PackedRun:
    """A run within a submission file."""

    run_id: str
    rows: int
    """How many rows it has. The rows of each run follow those of the run before."""
    content: str
    """The :func:`digest` of its footer and rows."""
    footer: dict[str, Any]
    """As in a run file, with the checksum that the run file had."""


def packed(runs: Iterable[PackedRun]) -> bytes:
    """The table. Raises ValueError where it is larger than readers allow."""
    runs = list(runs)
    text = "".join(json.dumps(asdict(run), separators=(",", ":")) + "\n" for run in runs).encode()
    if len(runs) > MAX_RUNS or len(text) > MAX_BYTES:
        most = f"{MAX_RUNS} runs and {MAX_BYTES // 2**20} MB of footers"
        raise ValueError(f"a submission has {most} at most, and this one has {len(runs)} and {len(text) / 2**20:.1f} MB")
    compressed: bytes = pa.Codec("zstd", compression_level=9).compress(text, asbytes=True)
    return base64.b64encode(len(text).to_bytes(_LENGTH_BYTES, "big") + compressed)


def unpacked(table: bytes) -> list[PackedRun]:
    """The runs of a table. Raises ValueError with the reason where it is none."""
    try:
        raw = base64.b64decode(table, validate=True)
        size = int.from_bytes(raw[:_LENGTH_BYTES], "big")
        if size > MAX_BYTES:
            raise ValueError(f"they take {size} bytes, and those of a submission {MAX_BYTES} at most")
        lines = pa.Codec("zstd").decompress(raw[_LENGTH_BYTES:], size, asbytes=True).decode().splitlines()
    except (binascii.Error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError("they are no compressed table") from error
    if not 0 < len(lines) <= MAX_RUNS:
        raise ValueError(f"they are of {len(lines)} runs, and a submission has 1 to {MAX_RUNS}")
    try:
        runs = [PackedRun(**json.loads(line)) for line in lines]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("a line of them is not as it must be") from error
    if not all(map(_is_typed, runs)):
        raise ValueError("a line of them has a value of a wrong type")
    if len({run.run_id for run in runs}) < len(runs):
        raise ValueError("a run is there twice")
    return runs


def _is_typed(run: PackedRun) -> bool:
    texts = isinstance(run.run_id, str) and isinstance(run.content, str) and isinstance(run.footer, dict)
    return texts and type(run.rows) is int and run.rows > 0


def digest(footer: Mapping[str, Any], rows: pa.Table) -> str:
    """The SHA-256 of a run: of its footer and its rows, however a file encodes them.

    The footer counts as JSON with sorted keys and no spaces. Each column follows with its name: of numbers, a byte for each row
    that says whether it has a value, and the values, little-endian, 0 where there is none; of all else, its rows as JSON.
    """
    found = hashlib.sha256(_json(footer))
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
