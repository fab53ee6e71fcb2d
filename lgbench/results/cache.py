"""The cache: many runs in one Parquet file, in the form that boards read, since opening files takes longer than reading rows.

It holds what kinds.sql makes of their rows: a row for all that differ in their points alone.

It is in the user's own cache folder, never in a results folder: a results folder may come from anybody, and its rows are those
of its run files alone. LGBENCH_CACHE names another cache folder.

A cache file is made of files of one results folder and never changes. It names them with the size and the times of change that
they had, and readers use its rows of those that are still as they were. So a new run is in no cache file yet, and no cache
file is ever wrong. Its footer also counts the descriptions of metrics that are in the footers of its runs.

Whoever writes a cache file deletes old ones. Somebody may be reading any of them, so one that was used within the last minutes
stays; and a reader whose cache file is gone reads the run files (:mod:`lgbench.results.database`). A cache folder that is
missing, full or not writable costs time alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import replace as but
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lgbench import user_cache
from lgbench.atomic_files import SUFFIX, replaced
from lgbench.results import run_files
from lgbench.results.metrics import Metric, described
from lgbench.results.run_files import Files
from lgbench.results.run_schema import METADATA_KEY, SCHEMA

RULES = 5
"""Raised when other run files than before can be on a board: cache files hold those that could when they were written."""

PATH, POINTS = "path", "points"
"""The column of a cache file that has the path of the run file, and the one with what differs within a kind."""
IN_POINTS = ("step", "length", "value", "n", "in_distribution", "on_boards")
"""The columns of run files that are in the points."""
KIND = tuple(name for name in SCHEMA.names if name not in IN_POINTS)
"""The columns of run files that all rows of a kind have in common."""
CACHED = pa.schema(
    [
        pa.field(PATH, pa.string()),
        *(SCHEMA.field(name) for name in KIND),
        pa.field("lengths", pa.int32()),
        pa.field("first_step", pa.int32()),
        pa.field("last_step", pa.int32()),
        pa.field(POINTS, pa.list_(pa.field("element", pa.struct([SCHEMA.field(name) for name in IN_POINTS])))),
    ]
)

BUSY, FORGOTTEN = 10 * 60, 30 * 24 * 60 * 60
"""Seconds since the last use: below the first somebody may be reading a cache file, beyond the second nobody wants it."""
MAX_BYTES = 2**30
"""Of all cache files together. The ones that were used last stay."""

Ways: TypeAlias = Counter[tuple[Metric, ...]]
"""Each description of metrics in the footers of a file, and how many of its runs have it."""


@dataclass(frozen=True)
class CacheFile:
    """A cache file, and which of its run files are read from it."""

    path: Path
    names: Sequence[str]
    """The run files that are still as they were, and whose rows no other cache file has."""
    others: Sequence[str]
    ways: Mapping[str, Ways]
    """By file."""

    @property
    def descriptions(self) -> Counter[Metric]:
        """How many of the runs that are read describe a metric so."""
        return descriptions(self.ways[name] for name in self.names)

    def kinds(self, results: Path) -> str:
        """A query for the kinds that are read."""
        rows = f"select * exclude ({PATH}) from read_parquet({quoted(unglobbed(str(self.path)))})"
        root = results.resolve()
        others = ", ".join(quoted(f"{root}/{name}") for name in self.others)
        return f"{rows} where {PATH} not in ({others})" if others else rows


def descriptions(ways: Iterable[Ways]) -> Counter[Metric]:
    """How many of the runs of some files describe a metric so."""
    total: Ways = Counter()
    for own in ways:
        total.update(own)
    counts: Counter[Metric] = Counter()
    for way, count in total.items():
        for metric in way:
            counts[metric] += count
    return counts


def find(results: Path, files: Files) -> tuple[list[CacheFile], Files]:
    """The cache files that hold `files` as they are, each file in one of them, and the files that are in no cache file.

    A cache file is left alone if most of its files have changed: its rows would cost more than they are worth.
    """
    found, loose = [], dict(files)
    opened = [own for path in _cache_files(results) if (own := _opened(path))]
    for cached, held in sorted(opened, key=lambda own: (-len(own[1]), own[0].path)):
        same = [name for name, own in held.items() if loose.get(name) == own]
        if 2 * len(same) >= len(held):
            found.append(but(cached, names=same, others=[*(held.keys() - same)]))
            for name in same:
                del loose[name]
            with suppress(OSError):
                os.utime(cached.path)
    return found, loose


def write(
    results: Path, files: Files, described: Mapping[str, Ways], connection: duckdb.DuckDBPyConnection, table: str
) -> CacheFile | None:
    """Put files with sound footers, whose kinds are in a table, into a cache file.

    `described` has what each of them says of metrics. None where the cache file cannot be written, or where a run file has
    changed since it was read.
    """
    folder = _folder(results)
    if folder is None:
        return None
    places: dict[tuple[Metric, ...], int] = {}
    counted = {name: [[places.setdefault(way, len(places)), count] for way, count in described[name].items()] for name in files}
    held = {name: [*own, counted[name]] for name, own in files.items()}
    about = json.dumps({"rules": RULES, "cached": held, "described": [[asdict(metric) for metric in way] for way in places]})
    path = folder / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.cache"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replaced(path) as partial:
            connection.execute(
                f"""copy (select {", ".join(CACHED.names)} from {table}) to {quoted(str(partial))}
                (format parquet, compression zstd, use_tmp_file false, kv_metadata {{lgbench: {quoted(about)}}})"""
            )
            if run_files.states(results, files) != files:
                raise FileNotFoundError("a run file has changed while it was read")
        _clean(path)
    except (OSError, duckdb.Error):
        return None
    return CacheFile(path, list(files), (), {name: described[name] for name in files})


def unglobbed(path: str) -> str:
    """A path that DuckDB takes literally, whatever brackets and stars are in it."""
    return re.sub(r"[*?[]", lambda special: f"[{special[0]}]", path)


def quoted(text: str) -> str:
    """An SQL literal, for the places where DuckDB takes no parameter."""
    return "'" + text.replace("'", "''") + "'"


def _folder(results: Path) -> Path | None:
    """Where the cache files of a results folder are; None where there is no place for them.

    Such a place is not within the results folder; it is absolute, as it is not for a user without a home; and it is text, which
    DuckDB needs.
    """
    results, folder = results.resolve(), user_cache.root()
    if not folder.is_absolute() or folder.is_relative_to(results):
        return None
    try:
        text = f"{folder}{results}".encode()
    except UnicodeEncodeError:
        return None
    return folder / "results" / hashlib.sha256(text).hexdigest()[:16]


def _cache_files(results: Path) -> list[Path]:
    folder = _folder(results)
    try:
        return [] if folder is None else list(folder.glob("*.cache"))
    except OSError:
        return []


def _clean(new: Path) -> None:
    """Delete what nobody wants any more, of all results folders, and what killed writers left. `new` was just written."""
    now, files = new.stat().st_mtime, {}
    for path in [*new.parent.parent.glob("*/*.cache"), *new.parent.parent.glob(f"*/.*{SUFFIX}")]:
        with suppress(OSError):
            files[path] = path.stat()
    kept = 0
    for path, status in sorted(files.items(), key=lambda own: -own[1].st_mtime):
        unused = now - status.st_mtime  # by one clock, that of the disk
        kept += status.st_size
        if unused > BUSY and (kept > MAX_BYTES or unused > FORGOTTEN or path.suffix == SUFFIX):
            with suppress(OSError):
                path.unlink()
                kept -= status.st_size


def _opened(path: Path) -> tuple[CacheFile, Files] | None:
    """A cache file of which nothing is read yet, and the run files that it was made of; None where this is no cache file."""
    try:
        footer = pq.read_metadata(path)
        about: Any = json.loads(footer.metadata[METADATA_KEY])
        columns = [field.with_nullable(True) for field in footer.schema.to_arrow_schema().remove_metadata()]
        if about["rules"] != RULES or not pa.schema(columns).equals(CACHED):
            return None
        known = [tuple(_metric(description) for description in way) for way in about["described"]]
        ways = {name: Counter({known[way]: count for way, count in own[-1]}) for name, own in about["cached"].items()}
        return CacheFile(path, (), (), ways), {name: tuple(own[:-1]) for name, own in about["cached"].items()}
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def _metric(description: Any) -> Metric:
    """Raises ValueError where this describes none."""
    (metric,) = described({"measurements": [description]})
    return metric
