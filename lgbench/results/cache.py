"""The cache: the rows of many run files in one Parquet file, since opening a file takes longer than reading its rows.

A cache file is made of run files and never changes. It names them with the size and the time of change that they had, and
readers use it only while each of them is still there as it was. So a new run is in no cache file yet, no cache file is ever
wrong, and anybody may delete them while nobody reads them. Its footer also counts the descriptions of metrics that are in the
footers of its run files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lgbench.atomic_files import created
from lgbench.results import run_files
from lgbench.results.metrics import Metric, described

FOLDER = ".cache"
"""Where the cache files of a results folder are."""

Files = Mapping[str, list[int]]
"""Run files by their names within the results folder; of each the size in bytes and the time of change in nanoseconds."""


@dataclass(frozen=True)
class CacheFile:
    """A cache file that can be read."""

    path: Path
    files: Files
    descriptions: Counter[Metric]
    """How many of the run files describe a metric so."""


def state(folder: Path, paths: Iterable[Path]) -> Files:
    """The run files as they are now."""
    files = {}
    for path in paths:
        with suppress(FileNotFoundError):  # deleted since it was found
            status = path.stat()
            files[path.relative_to(folder).as_posix()] = [status.st_size, status.st_mtime_ns]
    return files


def find(folder: Path, files: Files) -> tuple[list[CacheFile], Files]:
    """The cache files that hold `files` as they are, none of them twice, and the files that are in no cache file.

    A cache file of files that have changed or are gone is deleted, and one that cannot be read.
    """
    found, loose = [], dict(files)
    for path in sorted((folder / FOLDER).glob("*.cache")):
        cached = _opened(path)
        if cached is None or not cached.files.items() <= files.items():
            with suppress(OSError):
                path.unlink()
        elif cached.files.keys() <= loose.keys():
            found.append(cached)
            for name in cached.files:
                del loose[name]
    return found, loose


def write(folder: Path, files: Files, descriptions: Counter[Metric]) -> CacheFile | None:
    """Put run files with sound footers into a cache file.

    None where the folder cannot be written to or the rows of a file cannot be read.
    """
    counted = [[asdict(metric), count] for metric, count in descriptions.items()]
    about = json.dumps({"cached": files, "descriptions": counted})
    path = folder / FOLDER / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.cache"
    try:
        path.parent.mkdir(exist_ok=True)
        with created(path) as partial, duckdb.connect() as connection:
            connection.execute("set preserve_insertion_order = false")  # takes a quarter less time
            connection.execute(
                f"""copy (from read_parquet($paths, hive_partitioning = false)) to {_quoted(str(partial))}
                (format parquet, compression zstd, use_tmp_file false, kv_metadata {{lgbench: {_quoted(about)}}})""",
                {"paths": [unglobbed(folder / name) for name in files]},
            )
    except (OSError, duckdb.Error):
        return None
    return CacheFile(path, files, descriptions)


def unglobbed(path: Path) -> str:
    """A path that DuckDB takes literally, whatever brackets and stars are in it."""
    return re.sub(r"[*?[]", lambda special: f"[{special[0]}]", str(path))


def _opened(path: Path) -> CacheFile | None:
    """None where this is no cache file."""
    try:
        about = json.loads(pq.read_metadata(path).metadata[run_files.METADATA_KEY])
        counts: Counter[Metric] = Counter()
        for description, count in about["descriptions"]:
            (metric,) = described({"measurements": [description]})
            counts[metric] += int(count)
        return CacheFile(path, dict(about["cached"]), counts)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _quoted(text: str) -> str:
    """An SQL literal, for the places where DuckDB takes no parameter."""
    return "'" + text.replace("'", "''") + "'"
