"""Files that a command writes: figures, pages, and rows as Parquet or CSV."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lgbench.atomic_files import replaced
from lgbench.errors import UsageError, unknown


def replace(path: Path, content: bytes) -> None:
    """Put a whole file in place of one that may be there. Raises UsageError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; name another place") from error


FORMATS = (".parquet", ".csv")


def known_format(path: Path) -> str:
    """The ending of a file that rows can be written to. UsageError for any other."""
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise unknown("format", ending or path.name, FORMATS)
    return ending


def content(rows: pa.Table, path: Path) -> bytes:
    """All rows, in the format that the file's name says."""
    out = BytesIO()
    if known_format(path) == ".csv":
        pyarrow.csv.write_csv(rows, out)
    else:
        pq.write_table(rows, out, compression="zstd")
    return out.getvalue()
