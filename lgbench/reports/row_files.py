"""Files of rows that a command writes where it is asked to: Parquet or CSV."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lgbench.errors import unknown

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
