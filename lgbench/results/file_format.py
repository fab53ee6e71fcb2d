"""Formats of run files and submission files: columns, numbers in rows, checksum, and the runs of a submission in one file.

The checksum is the SHA-256 of all bytes of the file, with zeros in place of the digits of the checksum itself. Any changed bit
of rows or metadata is found at the price of reading the bytes, before Parquet sees them.

A submission file has the rows of its runs, one run after another, and a table with one line of JSON per run, compressed and in
Base64: Parquet does not compress metadata, and the metadata of the runs of one submission are nearly equal. Half of a small run
file describes columns. Runs in one file take half the space and open many times faster.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Meta

METADATA_KEY = b"lgbench"
"""Key, in the metadata of a Parquet file, of the JSON about a run or a submission."""

SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("entry", pa.string()),  # architecture and parts, joined by plus signs
        ("task", pa.string()),
        ("family", pa.string()),
        ("task_version", pa.int32()),
        ("protocol", pa.string()),
        ("protocol_version", pa.int32()),
        ("changes", pa.map_(pa.string(), pa.string())),  # settings that --set changed, and their values
        ("plugins", pa.map_(pa.string(), pa.string())),  # packages that decide the number, with their versions and sources
        ("seed", pa.int64()),
        ("weights", pa.string()),  # raw, the name of an averager, or "chance" for the context-free baseline
        ("metric", pa.string()),  # the name of a measurement; train_loss, gradient_norm
        ("metric_version", pa.int32()),  # null for the training curve
        ("step", pa.int32()),  # optimizer steps done
        ("length", pa.int32()),  # null for the training curve
        ("layer", pa.int32()),  # of a probe, counted from 1; null for a number of the whole model
        ("head", pa.int32()),  # of a probe, counted from 1; null for a number of the whole layer
        ("value", pa.float64()),  # null where the metric is not defined
        ("n", pa.int32()),  # answers, strings or steps that the value summarizes
        ("in_distribution", pa.bool_()),  # whether models are trained on this length; null for the training curve
        ("on_boards", pa.bool_()),  # whether boards show this length; null for the training curve
        ("diverged_step", pa.int32()),  # the step at which the training diverged, null if it did not
    ]
)


class Place(NamedTuple):
    """Place of a number among the rows of a run."""

    weights: str
    metric: str
    metric_version: int | None
    step: int
    length: int | None
    """None for the training curve."""
    layer: int | None
    """Layer of a probe; None for a number of the whole model."""
    head: int | None

    def __str__(self) -> str:
        if self.length is None:
            return f"{self.metric} at step {self.step}"
        return f"{self.metric} ({self.weights}){self.inside} at length {self.length} after step {self.step}"

    @property
    def inside(self) -> str:
        """Layer and head for a sentence, after a space; empty for a number of the whole model."""
        layer = "" if self.layer is None else f" in layer {self.layer}"
        return layer if self.head is None else f"{layer}, head {self.head}"


class Number(NamedTuple):
    """A value, None if undefined, over `n` contexts, strings or steps."""

    value: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.value!r} (n {self.n})"


def numbers_in(rows: pa.Table) -> dict[Place, Number]:
    """The numbers in the rows of a run."""
    places, numbers = ([rows[name].to_pylist() for name in kind._fields] for kind in (Place, Number))
    return dict(zip(map(Place, *places), map(Number, *numbers), strict=True))


CHECKSUM = "checksum"
ZEROS = "0" * 64
_SEAL = re.compile(rb'"checksum": "([0-9a-f]{64})"')
_SEAL_BEGINS = b'"checksum": "'


def sealed(content: bytes) -> bytes:
    """Bytes of a file with the checksum in place of the zeros."""
    place = _stated(content)
    assert place
    start, end = place.span(1)
    return content[:start] + hashlib.sha256(content).hexdigest().encode() + content[end:]


def is_sealed(content: bytes) -> bool | None:
    """Whether the checksum of a file is correct; None without a checksum."""
    stated = _stated(content)
    if stated is None:
        return None
    start, end = stated.span(1)
    digest = hashlib.sha256(memoryview(content)[:start])
    digest.update(ZEROS.encode())
    digest.update(memoryview(content)[end:])
    return digest.hexdigest().encode() == stated[1]


def _stated(content: bytes) -> re.Match[bytes] | None:
    """Last checksum in a file. The metadata of Parquet are at the end, and rows may contain anything."""
    place = len(content)
    while (place := content.rfind(_SEAL_BEGINS, 0, place)) >= 0:
        if stated := _SEAL.match(content, place):
            return stated
    return None


RUNS_KEY = b"lgbench.footers"
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


def submission(runs: Iterable[tuple[Mapping[str, Any], pa.Table]]) -> tuple[str, bytes]:
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


def run_lines(table: bytes) -> list[bytes]:
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
        runs = [msgspec.convert(json.loads(line), PackedRun) for line in run_lines(table)]
    except ValueError as error:
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
        writer.add_key_value_metadata({RUNS_KEY: packed(table), METADATA_KEY: json.dumps(about).encode()})
    return sealed(out.getvalue().to_pybytes())


def _leaves() -> Iterator[str]:
    """Columns under their Parquet names: a map is a column of keys and a column of values."""
    for field in SCHEMA:
        parts = (".key_value.key", ".key_value.value") if pa.types.is_map(field.type) else ("",)
        yield from (field.name + part for part in parts)
