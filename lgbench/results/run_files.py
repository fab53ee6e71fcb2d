"""Run files: one Parquet file a run, typed long rows, everything needed to rerun it in the footer; written once, whole.

A submission file has the same columns with the rows of many runs, and a table of their footers in its own. It is written by
:mod:`lgbench.results.submission_files`; :func:`footers` reads those of either kind.

The footer has a checksum of the file, which :mod:`lgbench.results.checksums` makes. Every reader here goes through
:mod:`lgbench.results.checked_files`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lgbench.atomic_files import created, set_aside
from lgbench.errors import RunFileError, first_line
from lgbench.results.checked_files import checked, packed_runs
from lgbench.results.checksums import CHECKSUM, ZEROS, sealed
from lgbench.results.run_schema import METADATA_KEY, SCHEMA

if TYPE_CHECKING:
    from lgbench.experiment.record import ExperimentRecord

TUNING = ".tuning"
"""The folder of tuning runs in a results folder. It is hidden, so that no board is made from them."""

Files = Mapping[str, tuple[int, ...]]
"""Files of runs by their names within the results folder; of each the size in bytes and the times of change in nanoseconds."""

_RUN_ID = SCHEMA.get_field_index("run_id")


def run_name(record: ExperimentRecord) -> str:
    """The name of a run."""
    return f"{record.task}.{record.entry}.seed-{record.seed}.{record.run_id}"


def name_for(record: ExperimentRecord) -> str:
    """The name of a run's file."""
    return f"{run_name(record)}.parquet"


def path_for(folder: Path, record: ExperimentRecord) -> Path:
    """Where a run's file is."""
    return folder / name_for(record)


def write(path: Path, rows: pa.Table, metadata: Mapping[str, Any], scratch: Path | None = None) -> None:
    """Write a run file once and whole, with its checksum; a file that is already there is left as it is.

    A reader sees nothing or everything: the file is written under another name, flushed to the disk, and linked. That other
    file, which a kill leaves behind, is in the folder `scratch`, on the same disk, or beside `path`.
    """
    content = serialized(rows, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    with created(path, scratch) as partial:
        partial.write_bytes(content)


def serialized(rows: pa.Table, metadata: Mapping[str, Any]) -> bytes:
    """The bytes of a run file, with its checksum."""
    about = {name: value for name, value in metadata.items() if name != CHECKSUM}
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer:
        writer.write_table(rows.cast(SCHEMA).replace_schema_metadata(None))
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(about | {CHECKSUM: ZEROS}).encode()})
    return sealed(out.getvalue().to_pybytes())


def read(path: Path) -> pa.Table:
    """All rows of a file, checked against the schema. Raises RunFileError with the reason."""
    try:
        # Without threads: those of pq.read_table may outlive it and abort a process that ends (apache/arrow, issue 39862).
        return _opened(path).read(use_threads=False).cast(SCHEMA)
    except (pa.ArrowException, OSError) as error:
        raise RunFileError(f"{path}: unreadable data ({first_line(error)})") from error


def require_readable(path: Path) -> None:
    """Raise RunFileError with the reason where the rows of a file cannot be read."""
    try:
        for _ in _opened(path).iter_batches(use_threads=False):
            pass
    except (pa.ArrowException, OSError) as error:
        raise RunFileError(f"{path}: unreadable data ({first_line(error)})") from error


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(checked(path).content))


def metadata(path: Path) -> dict[str, Any]:
    """The content of the footer: resolved config, versions, git commit, device, threads, seconds.

    Raises RunFileError with the reason where this is no run file, or not as it was written.
    """
    file = checked(path)
    if file.is_submission:
        raise RunFileError(f"{path} is a submission file, not a run file; file its runs with `lgbench submit`")
    return file.said


def footers(path: Path) -> dict[str, dict[str, Any]]:
    """The footer of each run of a run file or a submission file, by run id.

    Raises RunFileError with the reason where this is neither, or not as it was written.
    """
    file = checked(path)
    if file.is_submission:
        return {run.run_id: run.footer for run in packed_runs(path, file.footer)}
    statistics = file.footer.row_group(0).column(_RUN_ID).statistics
    return {str(statistics.min) if statistics is not None and statistics.has_min_max else "": file.said}


def is_submission(path: Path) -> bool:
    """Whether a file that :func:`footers` can read is a submission file."""
    return checked(path).is_submission


def is_run(path: Path, run_id: str) -> bool:
    """Whether a file is a run file as it was written, and all its rows are of this run. Reads its bytes, and no row."""
    try:
        file = checked(path)
    except RunFileError:
        return False
    if file.is_submission:
        return False
    groups = (file.footer.row_group(index).column(_RUN_ID).statistics for index in range(file.footer.num_row_groups))
    return all(group is not None and group.has_min_max and group.min == group.max == run_id for group in groups)


def make_room(path: Path, run_id: str) -> str | None:
    """Set a file aside that has the name of this run and is no whole file of it. Returns a sentence for the user if it did."""
    if not path.exists() or is_run(path, run_id):
        return None
    return f"{path} was no whole file of its run, and is now {set_aside(path).name}"


def find(folder: Path) -> Iterator[Path]:
    """Every Parquet file under a results folder, in a fixed order, except those that are hidden or in a hidden folder."""
    return (folder / name for name in states(folder))


def states(folder: Path, names: Iterable[str] | None = None) -> Files:
    """The same files as they are now, or those of them that have these names."""
    found = {}
    for name in _names(str(folder)) if names is None else names:
        with suppress(FileNotFoundError, NotADirectoryError):  # deleted since it was found
            status = os.stat(f"{folder}/{name}")
            if stat.S_ISREG(status.st_mode):
                # Anybody can set the time of change of the content, but not that of the file's record.
                found[name] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


def _names(folder: str) -> list[str]:
    found: list[str] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        within = parent.removeprefix(folder).strip("/")
        place = f"{within}/" if within else ""
        found += [place + name for name in files if name.endswith(".parquet") and not name.startswith(".")]
    return sorted(found, key=lambda name: name.split("/"))
