"""Packs: the rows of many run files in one Parquet file, since opening a file takes longer than reading its rows.

A pack is made of run files and never changes. It names them with the size and the time of change that they had, and is used
only while each of them is still there as it was. So a new run is in no pack yet, no pack is ever wrong, and packs can be
deleted whenever nobody reads them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import duckdb

from lgbench import runfiles
from lgbench.errors import RunFileError

FOLDER = ".packs"
"""Where the packs of a results folder are."""

Files = Mapping[str, list[int]]
"""Run files by their names within the results folder; of each the size in bytes and the time of change in nanoseconds."""


def state(folder: Path, paths: Iterable[Path]) -> Files:
    """The run files as they are now."""
    files = {}
    for path in paths:
        with suppress(FileNotFoundError):  # deleted since it was found
            status = path.stat()
            files[path.relative_to(folder).as_posix()] = [status.st_size, status.st_mtime_ns]
    return files


def find(folder: Path, files: Files) -> tuple[list[Path], Files]:
    """The packs that hold `files` as they are, none of them twice, and the files that are in no pack.

    A pack of files that have changed or are gone is deleted, and one that cannot be read.
    """
    packs, loose = [], dict(files)
    for pack in sorted((folder / FOLDER).glob("*.pack")):
        try:
            packed = runfiles.metadata(pack)["packed"]
        except (RunFileError, KeyError):
            packed = None
        if packed is None or not packed.items() <= files.items():
            with suppress(OSError):
                pack.unlink()
        elif packed.keys() <= loose.keys():
            packs.append(pack)
            for name in packed:
                del loose[name]
    return packs, loose


def write(folder: Path, files: Files) -> Path | None:
    """Pack run files with sound footers. None where the folder cannot be written to or the rows of a file cannot be read."""
    about = json.dumps({"packed": files})
    path = folder / FOLDER / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.pack"
    try:
        with runfiles.whole(path) as partial, duckdb.connect() as connection:
            connection.execute("set preserve_insertion_order = false")  # takes a quarter less time
            connection.execute(
                f"""copy (from read_parquet($paths, hive_partitioning = false)) to {_quoted(str(partial))}
                (format parquet, compression zstd, use_tmp_file false, kv_metadata {{lgbench: {_quoted(about)}}})""",
                {"paths": [unglobbed(folder / name) for name in files]},
            )
    except (OSError, duckdb.Error):
        return None
    return path


def unglobbed(path: Path) -> str:
    """A path that DuckDB takes literally, whatever brackets and stars are in it."""
    return re.sub(r"[*?[]", lambda special: f"[{special[0]}]", str(path))


def _quoted(text: str) -> str:
    """An SQL literal, for the places where DuckDB takes no parameter."""
    return "'" + text.replace("'", "''") + "'"
