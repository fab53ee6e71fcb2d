"""What a file must be to be read as a run file or a submission file: whole, as it was written, and no larger than any run.

Each check raises RunFileError with the reason. None reads a row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lgbench.errors import RunFileError, first_line
from lgbench.results.checksums import is_sealed
from lgbench.results.footers import KEY as FOOTERS_KEY
from lgbench.results.footers import PackedRun, unpacked
from lgbench.results.run_schema import METADATA_KEY, SCHEMA

_MAX_DEPTH, MAX_BYTES = 20, 2**26
"""Levels of a run's JSON, and bytes of a file. A run has about 6 and 20,000."""
_MAX_FOOTER, MAX_ROWS = 2**20, 2**20
"""Bytes of the footer of a run file, and its rows. A run has about 10,000 and 2,000, or 260,000 rows with tests to 2^15."""
_MAX_SUBMITTED_FOOTER, MAX_SUBMITTED_ROWS = 2**24, 2**24
"""The same for a submission file."""
_ARROW = b"ARROW:schema"


class CheckedFile(NamedTuple):
    """A run file or a submission file that is whole and as it was written."""

    content: bytes
    footer: pq.FileMetaData
    said: dict[str, Any]
    """The metadata of lgbench in the footer: of a run its resolved config, versions, git commit, device, threads, seconds."""

    @property
    def is_submission(self) -> bool:
        """Whether it is a submission file."""
        return _is_submission(self.footer)


def checked(path: Path) -> CheckedFile:
    """A file after all checks. Raises RunFileError where one fails."""
    content = content_of(path)
    as_written = is_sealed(content)
    if as_written is False:  # before Parquet sees it
        raise RunFileError(damaged(path))
    found = CheckedFile(content, *_footer(path, content))
    if as_written is None:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no checksum")
    return found


def content_of(path: Path) -> bytes:
    """The bytes of a file that may be a run file. Raises RunFileError where it cannot be one."""
    try:
        with path.open("rb") as file:
            content = file.read(min(os.fstat(file.fileno()).st_size, MAX_BYTES) + 1)
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise RunFileError(f"{path} is empty")
    if len(content) > MAX_BYTES:
        raise RunFileError(f"{path} is not a run of lgbench: it is larger than {MAX_BYTES // 2**20} MB")
    return content


def _footer(path: Path, content: bytes) -> tuple[pq.FileMetaData, dict[str, Any]]:
    try:
        footer = pq.read_metadata(pa.BufferReader(content))
        about = footer.metadata or {}
        schema = SCHEMA if _is_usual(footer, about) else footer.schema.to_arrow_schema()
        names = schema.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise RunFileError(f"{path} is no readable Parquet file ({first_line(error)})") from error
    submitted = _is_submission(footer)
    kind = "a submission" if submitted else "a run"
    for what, found, most in (
        ("bytes in its footer", footer.serialized_size, _MAX_SUBMITTED_FOOTER if submitted else _MAX_FOOTER),
        ("rows", footer.num_rows, MAX_SUBMITTED_ROWS if submitted else MAX_ROWS),
    ):
        if found > most:
            raise RunFileError(f"{path} is not {kind} of lgbench: it has {found} {what}, and {kind} has {most} at most")
    if not schema.remove_metadata().equals(SCHEMA):
        missing = [name for name in SCHEMA.names if name not in names]
        detail = f"it lacks the columns {', '.join(missing)}" if missing else "its columns differ from those of a run file"
        earlier = "; if an earlier lgbench made it, run it again" if METADATA_KEY in about else ""
        raise RunFileError(f"{path} is not {kind} of lgbench: {detail}{earlier}")
    if not footer.num_rows:
        raise RunFileError(f"{path} has no rows")
    return footer, _said(path, about)


def _said(path: Path, about: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        said = json.loads(about[METADATA_KEY])
    except (KeyError, ValueError, RecursionError) as error:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no metadata") from error
    if not isinstance(said, dict):
        raise RunFileError(f"{path} is not a run of lgbench: its footer metadata are not an object")
    if _is_nested(said):
        raise RunFileError(f"{path} is not a run of lgbench: its footer metadata are nested deeper than {_MAX_DEPTH} levels")
    return said


def _is_submission(footer: pq.FileMetaData) -> bool:
    return FOOTERS_KEY in (footer.metadata or {})


def packed_runs(path: Path, about: pq.FileMetaData) -> list[PackedRun]:
    """The runs of a submission file, by its metadata. Raises RunFileError with the reason."""
    try:
        runs = unpacked(about.metadata[FOOTERS_KEY])
    except ValueError as error:
        raise RunFileError(f"{path} is no submission file of lgbench: its footers are not readable, since {error}") from error
    if sum(run.rows for run in runs) != about.num_rows:
        raise RunFileError(f"{path} is no submission file of lgbench: its footers are of other rows than it has")
    if any(_is_nested(run.footer) for run in runs):
        raise RunFileError(f"{path} is no submission file of lgbench: a footer is nested deeper than {_MAX_DEPTH} levels")
    return runs


def damaged(path: Path) -> str:
    """The sentence about a file whose bytes are not those that were written."""
    return f"{path} is damaged, or somebody has changed it: its content does not fit the checksum in its footer"


def _is_usual(footer: pq.FileMetaData, about: Mapping[bytes, bytes]) -> bool:
    """Whether the columns are exactly as :mod:`lgbench.results.run_files` writes them here: a comparison without a copy."""
    schema, arrow = _usual()
    return about.get(_ARROW) == arrow and bool(footer.schema.equals(schema))


@cache
def _usual() -> tuple[pq.ParquetSchema, bytes]:
    out = pa.BufferOutputStream()
    pq.write_table(SCHEMA.empty_table(), out)
    footer = pq.read_metadata(pa.BufferReader(out.getvalue()))
    return footer.schema, footer.metadata[_ARROW]


def _is_nested(content: object) -> bool:
    """Whether JSON is nested deeper than any run's metadata; found without recursion, which has its own limit."""
    level = [content]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
