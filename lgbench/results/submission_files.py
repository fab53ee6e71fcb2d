"""Submission files: the runs of a submission in one Parquet file, written once, whole.

A run file is small, and half of it describes its columns. Together, runs take half of the space, and open many times faster.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lgbench.results.checksums import CHECKSUM, sealed
from lgbench.results.footers import KEY, PackedRun, digest, packed
from lgbench.results.run_schema import METADATA_KEY, SCHEMA

if TYPE_CHECKING:
    from lgbench.experiment.record import ExperimentRecord

GROUP_ROWS = 2**17
"""A row group ends with the run that brings it to so many rows, so that readers need little memory."""


@dataclass(frozen=True)
class SubmittedRun:
    """A run that a submission file gets."""

    record: ExperimentRecord
    footer: Mapping[str, Any]
    """As in its run file."""
    rows: pa.Table
    """In the schema of run files."""

    @property
    def order(self) -> tuple[str, str, int, str]:
        """Runs of one task and entry stand together."""
        return self.record.task, self.record.entry, self.record.seed, self.record.run_id


def written(runs: Sequence[SubmittedRun]) -> tuple[str, bytes]:
    """The name and the bytes of the submission file of these runs. Raises ValueError where they are too many for one file."""
    ordered = sorted(runs, key=lambda run: run.order)
    about = [PackedRun(run.record.run_id, run.rows.num_rows, digest(run.footer, run.rows), dict(run.footer)) for run in ordered]
    return name_for([run.record for run in ordered], [run.content for run in about]), _serialized(ordered, about)


def name_for(records: Sequence[ExperimentRecord], contents: Sequence[str]) -> str:
    """The name of the submission file of these runs: their family, their entry, and 16 digits that change with any of them."""
    families = sorted({record.family for record in records})
    entries = sorted({record.entry for record in records})
    of = families[0] if len(families) == 1 else f"{len(families)}-families"
    by = entries[0] if len(entries) == 1 else f"{len(entries)}-entries"
    return f"{of}.{by}.{hashlib.sha256(''.join(sorted(contents)).encode()).hexdigest()[:16]}.parquet"


def _serialized(runs: Sequence[SubmittedRun], about: Sequence[PackedRun]) -> bytes:
    table, out = packed(about), pa.BufferOutputStream()
    # Most of a file is values, of which neighbours have bytes in common: see the decision "A submission is one file".
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 9,
        "use_dictionary": [name for name in _leaves() if name != "value"],
        "use_byte_stream_split": ["value"],
    }
    with pq.ParquetWriter(out, SCHEMA, **options) as writer:
        for group in _groups(runs):
            writer.write_table(group, row_group_size=group.num_rows)
        said = {"runs": len(runs), CHECKSUM: "0" * 64}
        writer.add_key_value_metadata({KEY: table, METADATA_KEY: json.dumps(said).encode()})
    return sealed(out.getvalue().to_pybytes())


def _leaves() -> Iterator[str]:
    """The columns as Parquet names them: a map is a column of keys and one of values."""
    for field in SCHEMA:
        parts = (".key_value.key", ".key_value.value") if pa.types.is_map(field.type) else ("",)
        yield from (field.name + part for part in parts)


def _groups(runs: Sequence[SubmittedRun]) -> Iterator[pa.Table]:
    """The rows of all runs, in tables of whole runs."""
    waiting: list[pa.Table] = []
    for run in runs:
        waiting.append(run.rows.cast(SCHEMA).replace_schema_metadata(None))
        if sum(rows.num_rows for rows in waiting) >= GROUP_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
