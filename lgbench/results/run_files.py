"""Run files: one Parquet file per run with typed long rows and all metadata to run it again; written once, whole.

A submission file (:mod:`lgbench.results.file_format`) has the same columns, with the rows and metadata of many runs.

:func:`find` lists the files of a folder, :func:`checked` says whether a file is sound, :class:`CheckedFile` has its content.

Saved weights, raw and averaged, are in a file beside the run file. It is written first, so every visible run has its weights,
and never replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Meta

from lgbench.atomic_files import created, set_aside
from lgbench.contracts import Facts
from lgbench.errors import RunFileError, UsageError, first_line
from lgbench.experiment.record import ExperimentRecord
from lgbench.results.file_format import (
    CHECKSUM,
    METADATA_KEY,
    RUNS_KEY,
    SCHEMA,
    ZEROS,
    PackedRun,
    is_sealed,
    run_lines,
    sealed,
    unpacked,
)

TUNING = ".tuning"
"""Folder of tuning runs in a results folder. It is hidden: boards do not show tuning runs."""

_RUN_ID = SCHEMA.get_field_index("run_id")


def run_name(record: ExperimentRecord) -> str:
    """Name of a run."""
    return f"{record.task}.{record.entry}.seed-{record.seed}.{record.run_id}"


def path_for(folder: Path, record: ExperimentRecord) -> Path:
    """Path of the file of a run."""
    return folder / f"{run_name(record)}.parquet"


def write(path: Path, rows: pa.Table, metadata: Mapping[str, Any], scratch: Path | None = None) -> None:
    """Write a run file once and whole, with its checksum. An existing file stays as it is.

    The bytes go to a temporary file in `scratch`, a folder on the same disk, or beside `path`; then it is linked. Readers see
    the whole file or nothing.
    """
    content = serialized(rows, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    with created(path, scratch) as partial:
        partial.write_bytes(content)


def serialized(rows: pa.Table, metadata: Mapping[str, Any]) -> bytes:
    """Bytes of a run file, with its checksum."""
    about = {name: value for name, value in metadata.items() if name != CHECKSUM}
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer:
        writer.write_table(rows.cast(SCHEMA).replace_schema_metadata(None))
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(about | {CHECKSUM: ZEROS}).encode()})
    return sealed(out.getvalue().to_pybytes())


class _Metadata(msgspec.Struct):
    """Part of the metadata of a run: its record, the descriptions of metrics, and what is published about the task."""

    experiment: ExperimentRecord
    facts: Facts | None = None
    measurements: msgspec.Raw = msgspec.Raw(b"[]")  # raw, because thousands of runs share one text


class RecordedRun(msgspec.Struct):
    """A run and its record: part of a line of the table of a submission file."""

    run_id: str
    metadata: _Metadata = msgspec.field(name="footer")  # the name in published files


_metadata = msgspec.json.Decoder(_Metadata)
_line = msgspec.json.Decoder(RecordedRun)
_Decoded = TypeVar("_Decoded")


class CheckedFile(NamedTuple):
    """A sound run file or submission file: complete, with a correct checksum and the columns of a run."""

    path: Path
    content: bytes
    parquet: pq.FileMetaData

    @property
    def is_submission(self) -> bool:
        """Whether the file is a submission file."""
        return RUNS_KEY in self.parquet.metadata

    def rows(self) -> pa.Table:
        """All rows. Raises RunFileError with the reason."""
        try:
            # Without threads: threads of pq.read_table may outlive it and abort an ending process (apache/arrow, issue 39862).
            rows = pq.ParquetFile(pa.BufferReader(self.content)).read(use_threads=False)
            return rows.replace_schema_metadata(None).cast(SCHEMA)
        except (pa.ArrowException, OSError) as error:
            raise RunFileError(f"{self.path}: unreadable data ({first_line(error)}); remove it, and run it again") from error

    def runs(self) -> list[PackedRun]:
        """Runs, in the order of their rows. Raises RunFileError with the reason."""
        if not self.is_submission:
            return [PackedRun(self.run_id, self.parquet.num_rows, "", json.loads(self.parquet.metadata[METADATA_KEY]))]
        try:
            runs = unpacked(self.parquet.metadata[RUNS_KEY])
        except ValueError as error:
            raise RunFileError(f"{self.path} is not a submission of lgbench: {error}") from error
        if sum(run.rows for run in runs) != self.parquet.num_rows:
            raise RunFileError(f"{self.path} is not a submission of lgbench: its table of runs is about other rows")
        return runs

    def tables(self) -> Iterator[tuple[PackedRun, pa.Table]]:
        """Runs with their rows. Raises RunFileError with the reason."""
        rows, start = self.rows(), 0
        for run in self.runs():
            own = rows.slice(start, run.rows)
            if pc.unique(own["run_id"]).to_pylist() != [run.run_id]:
                where = f"{self.path}, run {run.run_id!a:.50}" if self.is_submission else str(self.path)
                raise RunFileError(f"{where}: its rows are of another run, or of several")
            yield run, own
            start += run.rows

    @property
    def run_id(self) -> str:
        """Run id in all rows of a run file; empty for several."""
        groups = (self.parquet.row_group(index).column(_RUN_ID).statistics for index in range(self.parquet.num_row_groups))
        found = {end for group in groups for end in ((group.min, group.max) if group and group.has_min_max else ("",))}
        return str(found.pop()) if len(found) == 1 else ""

    def recorded(self) -> list[RecordedRun]:
        """Runs with their records. Raises RunFileError with the reason. Several times as fast as :meth:`runs`."""
        about = self.parquet.metadata
        try:
            if self.is_submission:
                return [_decoded(_line, line) for line in run_lines(about[RUNS_KEY])]
            return [RecordedRun(self.run_id, _decoded(_metadata, about[METADATA_KEY]))]
        except ValueError as error:
            raise RunFileError(f"{self.path} is not a run of lgbench: in its metadata, {error}") from error


def _decoded(decoder: msgspec.json.Decoder[_Decoded], text: bytes) -> _Decoded:
    try:
        return decoder.decode(text)
    except msgspec.DecodeError:  # NaN, which Python writes, is not JSON
        return decoder.decode(msgspec.json.encode(json.loads(text)))


def checked(path: Path) -> CheckedFile:
    """A sound run file or submission file. Raises RunFileError with the reason for any other file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror}") from error
    return _sound(path, content)


def _sound(path: Path, content: bytes) -> CheckedFile:
    if not content:
        raise RunFileError(f"{path} is empty")
    as_written = is_sealed(content)
    if as_written is False:  # before Parquet sees it
        raise RunFileError(f"{path} is damaged or was changed: its content does not fit its checksum")
    try:
        parquet = pq.read_metadata(pa.BufferReader(content))
        schema = parquet.schema.to_arrow_schema().remove_metadata()
        names = schema.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise RunFileError(f"{path} is no readable Parquet file ({first_line(error)})") from error
    about = parquet.metadata or {}
    if not schema.equals(SCHEMA):
        missing = [name for name in SCHEMA.names if name not in names]
        detail = f"it lacks the columns {', '.join(missing)}" if missing else "its columns differ from those of a run file"
        earlier = "; if an earlier lgbench made it, run it again" if METADATA_KEY in about else ""
        raise RunFileError(f"{path} is not a run of lgbench: {detail}{earlier}")
    if METADATA_KEY not in about:
        raise RunFileError(f"{path} is not a run of lgbench: it has no metadata of lgbench")
    if as_written is None:
        raise RunFileError(f"{path} is not a run of lgbench: its metadata have no checksum")
    if not parquet.num_rows:
        raise RunFileError(f"{path} has no rows")
    return CheckedFile(path, content, parquet)


def read(path: Path) -> pa.Table:
    """All rows of a sound file. Raises RunFileError with the reason."""
    return checked(path).rows()


def metadata(path: Path) -> dict[str, Any]:
    """Metadata of a run file. Raises RunFileError with the reason for any other file."""
    file = checked(path)
    if file.is_submission:
        raise RunFileError(f"{path} is a submission file, not a run file; file its runs with `lgbench submit`")
    (run,) = file.runs()
    return run.metadata


def metadata_of_runs(path: Path) -> dict[str, dict[str, Any]]:
    """Metadata of each run of a run file or a submission file, by run id. Raises RunFileError with the reason.

    Resolved config, versions, git commit, device, threads, seconds.
    """
    return {run.run_id: run.metadata for run in checked(path).runs()}


def is_run(path: Path, run_id: str) -> bool:
    """Whether a file is a sound run file of a run. Reads bytes, without decoding rows.

    Raises OSError if the disk does not answer: an unreadable file is no damaged one, which the next run would replace.
    """
    try:
        file = _sound(path, path.read_bytes())
    except (FileNotFoundError, RunFileError):
        return False
    return not file.is_submission and file.run_id == run_id


def make_room(path: Path, run_id: str) -> str | None:
    """Rename an unsound file with the name of a run. Returns a sentence for the user after renaming."""
    if not path.exists() or is_run(path, run_id):
        return None
    return f"{path} was damaged, and is now {set_aside(path).name}"


def find(folder: Path) -> Iterator[Path]:
    """Parquet files under a results folder, in a fixed order, without hidden files and hidden folders."""
    found: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent, name) for name in files if name.endswith(".parquet") and not name.startswith(".")]
    return iter(sorted(path for path in found if path.is_file()))


def require_writable(folder: Path) -> None:
    """Make a results folder. Raises UsageError if the folder is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"cannot write to the results folder {str(folder)!r}: {error.strerror}") from error


SAVED_WEIGHTS = "kept_weights"  # as in published files
"""Field of the metadata with the hash of saved weights; absent for a run without saved weights."""


@dataclass(frozen=True)
class SavedWeights:
    """Saved weights of a run, in its metadata.

    The hash is also in the name of the weights file, so weights of another training of the same run are never taken for these.
    """

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """SHA-256 of the file."""
    size: Annotated[int, Meta(ge=1)]
    """Size of the file in bytes."""

    @classmethod
    def of(cls, content: bytes) -> SavedWeights:
        """Hash and size of the content of a weights file."""
        return cls(hashlib.sha256(content).hexdigest(), len(content))

    @property
    def field(self) -> dict[str, Any]:
        """Field of the metadata of the run file."""
        return {SAVED_WEIGHTS: asdict(self)}

    def beside(self, run_file: Path) -> Path:
        """Weights file of the run file with these weights."""
        return run_file.with_name(f"{run_file.name.removesuffix('.parquet')}.{self.sha256[:8]}.safetensors")


def saved_by(metadata: Mapping[str, Any]) -> SavedWeights | None:
    """Saved weights in the metadata of a run; None for a run without saved weights."""
    try:
        return msgspec.convert(metadata[SAVED_WEIGHTS], SavedWeights)
    except (KeyError, msgspec.ValidationError):
        return None


def write_weights(path: Path, content: bytes, scratch: Path | None = None) -> None:
    """Write weights once and whole. An equal existing file stays; a damaged existing file is set aside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() != content:
        set_aside(path)
    with created(path, scratch) as partial:
        partial.write_bytes(content)


def read_weights(path: Path, saved: SavedWeights) -> bytes:
    """Content of a weights file. Raises RunFileError for a missing file, or a wrong hash."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RunFileError(
            f"the weights of this run are missing: {path} should be there; copy it beside the run file"
        ) from None
    except OSError as error:
        raise RunFileError(f"the weights {path} cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != saved.sha256:
        raise RunFileError(f"the weights {path} are damaged, or of another run: their SHA-256 is not the one in the run file")
    return content
