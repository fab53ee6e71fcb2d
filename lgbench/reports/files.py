"""Output files of commands: figures, pages, and rows as Parquet or CSV."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lgbench.atomic_files import replaced
from lgbench.errors import UsageError, unknown


def replace(path: Path, content: bytes) -> None:
    """Write a whole file, in place of an older file. Raises UsageError if writing fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; name another place") from error


FORMATS = (".parquet", ".csv")


def known_format(path: Path, formats: Iterable[str] = FORMATS) -> str:
    """Extension of a file, by default of rows. Raises UsageError for an unknown format."""
    ending = path.suffix.lower()
    if ending not in formats:
        raise unknown("format", ending or path.name, formats)
    return ending


def content(rows: pa.Table, path: Path) -> bytes:
    """File content with all rows, in the format of the path's extension."""
    out = BytesIO()
    if known_format(path) == ".csv":
        pyarrow.csv.write_csv(rows, out)
    else:
        pq.write_table(rows, out, compression="zstd")
    return out.getvalue()
