"""Run files: one Parquet file a run, typed long rows, everything needed to rerun it in the footer; written once, whole.

A submission file has the same columns with the rows of many runs, and a table of their footers in its own. It is written by
:mod:`lgbench.results.submission_files`; :func:`footers` reads those of either kind.

The footer has a checksum of the file, which :mod:`lgbench.results.checksums` makes.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lgbench.atomic_files import created
from lgbench.errors import RunFileError, first_line
from lgbench.results.checksums import CHECKSUM, ZEROS, is_sealed, sealed
from lgbench.results.footers import KEY as FOOTERS_KEY
from lgbench.results.footers import PackedRun, unpacked

if TYPE_CHECKING:
    from lgbench.experiment.record import ExperimentRecord

METADATA_KEY = b"lgbench"

TUNING = ".tuning"
"""The folder of tuning runs in a results folder, or at an address. It is hidden, so that no board is made from them."""

Files = Mapping[str, tuple[int, ...]]
"""Files of runs by their names within the results folder; of each the size in bytes and the times of change in nanoseconds."""

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
        ("weights", pa.string()),  # raw, the name of an averager, or chance for the task's chance level
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

_MAX_DEPTH, MAX_BYTES = 20, 2**26
"""Levels of a run's JSON, and bytes of a file. A run has about 6 and 20,000."""
_MAX_FOOTER, _MAX_ROWS = 2**20, 2**18
"""Bytes of the footer of a run file, and its rows. A run has about 10,000 and 2,000."""
_MAX_SUBMITTED_FOOTER, MAX_SUBMITTED_ROWS = 2**24, 2**24
"""The same for a submission file."""
_ARROW = b"ARROW:schema"
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

    A reader sees nothing or everything: the file is written under another name, flushed to the disk, and renamed. That other
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


def damaged(path: Path) -> str:
    """The sentence about a file whose bytes are not those that were written."""
    return f"{path} is damaged, or somebody has changed it: its content does not fit the checksum in its footer"


def read(path: Path) -> pa.Table:
    """All rows of a file, checked against the schema. Raises RunFileError with the reason."""
    content = content_of(path)
    _checked(path, content)
    try:
        # Without threads: those of pq.read_table may outlive it and abort a process that ends (apache/arrow, issue 39862).
        return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False).cast(SCHEMA)
    except (pa.ArrowException, OSError) as error:
        raise RunFileError(f"{path}: unreadable data ({first_line(error)})") from error


def metadata(path: Path) -> dict[str, Any]:
    """The content of the footer: resolved config, versions, git commit, device, threads, seconds.

    Raises RunFileError with the reason where this is no run file, or not as it was written.
    """
    about, said = _checked(path, content_of(path))
    if _is_submission(about):
        raise RunFileError(f"{path} is a submission file, not a run file; file its runs with `lgbench submit`")
    return said


def footers(path: Path) -> dict[str, dict[str, Any]]:
    """The footer of each run of a run file or a submission file, by run id.

    Raises RunFileError with the reason where this is neither, or not as it was written.
    """
    about, said = _checked(path, content_of(path))
    if _is_submission(about):
        return {run.run_id: run.footer for run in packed_runs(path, about)}
    statistics = about.row_group(0).column(_RUN_ID).statistics
    return {str(statistics.min) if statistics is not None and statistics.has_min_max else "": said}


def is_submission(path: Path) -> bool:
    """Whether a file that :func:`footers` can read is a submission file."""
    return _is_submission(_footer(path, content_of(path))[0])


def require_readable(path: Path) -> None:
    """Raise RunFileError with the reason where the rows of a file cannot be read."""
    content = content_of(path)
    _checked(path, content)
    try:
        for _ in pq.ParquetFile(pa.BufferReader(content)).iter_batches(use_threads=False):
            pass
    except (pa.ArrowException, OSError) as error:
        raise RunFileError(f"{path}: unreadable data ({first_line(error)})") from error


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


def _is_submission(about: pq.FileMetaData) -> bool:
    return FOOTERS_KEY in (about.metadata or {})


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


def _checked(path: Path, content: bytes) -> tuple[pq.FileMetaData, dict[str, Any]]:
    """The footer of a run file, and what :func:`metadata` returns."""
    as_written = is_sealed(content)
    if as_written is False:  # before Parquet sees it
        raise RunFileError(damaged(path))
    found = _footer(path, content)
    if as_written is None:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no checksum")
    return found


def _footer(path: Path, content: bytes) -> tuple[pq.FileMetaData, dict[str, Any]]:
    try:
        footer = pq.read_metadata(pa.BufferReader(content))
        about = footer.metadata or {}
        found = SCHEMA if _is_usual(footer, about) else footer.schema.to_arrow_schema()
        names = found.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise RunFileError(f"{path} is no readable Parquet file ({first_line(error)})") from error
    submitted = _is_submission(footer)
    kind = "a submission" if submitted else "a run"
    for what, found_here, most in (
        ("bytes in its footer", footer.serialized_size, _MAX_SUBMITTED_FOOTER if submitted else _MAX_FOOTER),
        ("rows", footer.num_rows, MAX_SUBMITTED_ROWS if submitted else _MAX_ROWS),
    ):
        if found_here > most:
            raise RunFileError(f"{path} is not {kind} of lgbench: it has {found_here} {what}, and {kind} has {most} at most")
    if not found.remove_metadata().equals(SCHEMA):
        missing = [name for name in SCHEMA.names if name not in names]
        detail = f"it lacks the columns {', '.join(missing)}" if missing else "its columns differ from those of a run file"
        earlier = "; if an earlier lgbench made it, run it again" if METADATA_KEY in about else ""
        raise RunFileError(f"{path} is not {kind} of lgbench: {detail}{earlier}")
    if not footer.num_rows:
        raise RunFileError(f"{path} has no rows")
    try:
        said = json.loads(about[METADATA_KEY])
    except (KeyError, ValueError, RecursionError) as error:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no metadata") from error
    if not isinstance(said, dict):
        raise RunFileError(f"{path} is not a run of lgbench: its footer metadata are not an object")
    if _is_nested(said):
        raise RunFileError(f"{path} is not a run of lgbench: its footer metadata are nested deeper than {_MAX_DEPTH} levels")
    return footer, said


def _is_usual(footer: pq.FileMetaData, about: Mapping[bytes, bytes]) -> bool:
    """Whether a file has the columns of a run file exactly as :func:`write` writes them here: a comparison without a copy."""
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


def is_run(path: Path, run_id: str) -> bool:
    """Whether a file is a run file as it was written, and all its rows are of this run. Reads its bytes, and no row."""
    try:
        footer, _ = _checked(path, content_of(path))
    except RunFileError:
        return False
    if _is_submission(footer):
        return False
    groups = (footer.row_group(index).column(_RUN_ID).statistics for index in range(footer.num_row_groups))
    return all(group is not None and group.has_min_max and group.min == group.max == run_id for group in groups)


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
