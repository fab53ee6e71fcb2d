"""The process that reads strangers' files for :mod:`lgbench.submissions.reader`, within limits. It says why it refuses one."""

from __future__ import annotations

import contextlib
import json
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lgbench.errors import RunFileError, first_line
from lgbench.results.checked_files import MAX_BYTES, MAX_ROWS, MAX_SUBMITTED_ROWS, damaged, packed_runs
from lgbench.results.checksums import is_sealed
from lgbench.results.footers import KEY as FOOTERS_KEY
from lgbench.results.run_schema import METADATA_KEY, SCHEMA

READY = b"ready\n"
"""The line that the process writes once it has started."""

TEXTS = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
MAPS = [field.name for field in SCHEMA if pa.types.is_map(field.type)]


@dataclass(frozen=True)
class Limits:
    """How large one run file may be: many times an honest run, and little for any machine."""

    file_bytes: int = 16 * 2**20
    footer_bytes: int = 256 * 2**10
    """Of the metadata alone."""
    submission_bytes: int = MAX_BYTES
    """Of a submission file. The limits below are for each of its row groups and runs."""
    rows: int = MAX_ROWS
    row_groups: int = 1000
    unfolded_bytes: int = 64 * 2**20
    """Of all columns: as the file declares them, and in memory, where each row has its own copy of a text."""
    text_bytes: int = 1000
    """Of each text in a column."""
    memory: int = 512 * 2**20
    """In addition to what the process has before it opens a file."""
    seconds: float = 30.0


def serve() -> None:
    """Each line of standard input names a file to read. Standard output has an answer for each of its runs, and a last one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent takes Ctrl-C, and then ends this process
    limits = Limits(**json.loads(sys.argv[1]))
    pa.set_memory_pool(pa.system_memory_pool())  # others reserve memory far ahead, which counts against the limit
    _limit_memory(limits.memory)
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        for answer in _answers(Path(request["path"]), request["rows"], request["only"], limits):
            for part in answer:
                out.write(part)
            out.flush()


def _limit_memory(more: int) -> None:
    """Let no allocation succeed that takes this process `more` bytes beyond what it has, where the system can do that."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = psutil.Process().memory_info().vms + more
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answers(path: Path, rows: bool, only: list[str] | None, limits: Limits) -> Iterator[list[Any]]:
    """A head and two parts for each run: its footer and its rows. The last answer is a head alone, with the problem if any."""
    problem = None
    try:
        for run, footer, table in _runs(path, rows, only, limits):
            head = {"run": run, "sizes": [len(footer), len(table)]}
            yield [json.dumps(head).encode() + b"\n", footer, table]
    except MemoryError:
        problem = f"{path} takes more than {limits.memory // 2**20} MB of memory to read, as no run file does"
    except RunFileError as error:
        problem = str(error)
    except Exception as error:  # whatever a reader raises over a broken file
        problem = f"{path} is no readable Parquet file ({_printable(first_line(error))})"
    yield [json.dumps({"last": True, "problem": problem}).encode() + b"\n"]


def _runs(path: Path, rows: bool, only: list[str] | None, limits: Limits) -> Iterator[tuple[dict[str, str] | None, bytes, Any]]:
    """The runs of a file: of a submission file, what its table says of each, or else None; the footer; the rows."""
    content = _bytes_of(path, limits)
    as_written = is_sealed(content)
    if as_written is False:
        raise RunFileError(damaged(path))
    about = pq.read_metadata(pa.BufferReader(content))
    _check_columns(path, about.schema.to_arrow_schema())
    footer, submitted = (about.metadata or {}).get(METADATA_KEY), FOOTERS_KEY in (about.metadata or {})
    _check_sizes(path, about, limits, submitted)
    if footer is None:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no metadata")
    if as_written is None:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no checksum")
    groups = _Groups(content, about)
    if not submitted:
        if len(content) > limits.file_bytes:
            raise _too_large(path, limits.file_bytes, "run")
        _check_footer(path, footer, limits)
        yield None, footer, _sendable(path, groups.rows(0, about.num_rows), limits) if rows else b""
        return
    start = 0
    for run in packed_runs(path, about):
        if only is None or run.run_id in only:
            footer = json.dumps(run.footer).encode()
            _check_footer(path, footer, limits)
            own = _sendable(path, groups.rows(start, start + run.rows), limits) if rows else b""
            yield {"run_id": run.run_id, "content": run.content}, footer, own
        start += run.rows


def _check_footer(path: Path, footer: bytes, limits: Limits) -> None:
    if len(footer) > limits.footer_bytes:
        raise RunFileError(f"{path} has {len(footer)} bytes of metadata, and a run at most {limits.footer_bytes}")


class _Groups:
    """The rows of a file. Texts are coded, and one row group is in the memory at a time."""

    def __init__(self, content: bytes, about: pq.FileMetaData) -> None:
        coded = TEXTS + [f"{name}.key_value.{part}" for name in MAPS for part in ("key", "value")]
        self._file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=coded)
        sizes = [about.row_group(index).num_rows for index in range(about.num_row_groups)]
        self._ends = list(accumulate(sizes))
        self._held: tuple[int, pa.Table] | None = None

    def rows(self, start: int, end: int) -> pa.Table:
        """The rows from `start` up to `end`, of which there must be as many."""
        parts = []
        for index, (first, last) in enumerate(pairwise([0, *self._ends])):
            if first < end and start < last:
                if self._held is None or self._held[0] != index:
                    self._held = None
                    self._held = index, self._file.read_row_group(index, use_threads=False)
                low, high = max(start, first), min(end, last)
                part = self._held[1].slice(low - first, high - low)
                # A slice of a map has the keys of the whole.
                parts.append(part if high - low == last - first else part.take(pa.array(range(high - low))))
        return pa.concat_tables(parts)


def _bytes_of(path: Path, limits: Limits) -> bytes:
    """All of a regular file, read once, so that nobody can change it between two readings."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RunFileError(f"{path} is no regular file")
        with path.open("rb") as file:
            content = file.read(max(limits.file_bytes, limits.submission_bytes) + 1)
    except OSError as error:
        raise RunFileError(f"{path} cannot be opened: {error.strerror}") from error
    if not content:
        raise RunFileError(f"{path} is empty")
    if len(content) > max(limits.file_bytes, limits.submission_bytes):
        raise _too_large(path, limits.submission_bytes, "submission")
    return content


def _too_large(path: Path, most: int, what: str) -> RunFileError:
    return RunFileError(f"{path} is larger than {most // 2**20} MB, and no {what} is")


def _check_columns(path: Path, found: pa.Schema) -> None:
    """Raises RunFileError where the columns are not those of a run, with the names of those that differ."""
    if found.remove_metadata().equals(SCHEMA):
        return
    missing = [name for name in SCHEMA.names if name not in found.names]
    extra = [repr(name)[:80] for name in found.names if name not in SCHEMA.names]
    other = [
        f"{name} is {found.field(name).type}, not {SCHEMA.field(name).type}"
        for name in SCHEMA.names
        if found.names.count(name) == 1 and found.field(name).type != SCHEMA.field(name).type
    ]
    reasons = [f"it lacks the columns {', '.join(missing)}"] if missing else []
    reasons += [f"it has columns that no run has: {', '.join(extra[:5])}"] if extra else []
    reasons += [f"its columns differ from those of a run file: {', '.join(other)}"] if other else []
    detail = "; ".join(reasons) or "its columns differ from those of a run file in order, number or nulls"
    raise RunFileError(f"{path} is not a run of lgbench: {detail}")


def _check_sizes(path: Path, about: pq.FileMetaData, limits: Limits, submitted: bool) -> None:
    """Raises RunFileError where the file declares more than a run or a submission has, before anything is unfolded."""
    if not about.num_rows:
        raise RunFileError(f"{path} has no rows")
    if about.num_row_groups > limits.row_groups:
        raise RunFileError(f"{path} has {about.num_row_groups} row groups, and a run at most {limits.row_groups}")
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    if submitted and about.num_rows > MAX_SUBMITTED_ROWS:
        raise RunFileError(f"{path} has {about.num_rows} rows, and a submission at most {MAX_SUBMITTED_ROWS}")
    if about.num_rows != sum(group.num_rows for group in groups):
        raise RunFileError(f"{path} is no readable Parquet file: its row groups have other rows than it says")
    for part in [[group] for group in groups] if submitted else [groups]:
        columns = [group.column(index) for group in part for index in range(group.num_columns)]
        counts = (sum(group.num_rows for group in part), *(column.num_values for column in columns))
        rows = max(*counts, 0 if submitted else about.num_rows)
        if rows > limits.rows:
            what = "a row group of a submission" if submitted else "a run"
            raise RunFileError(f"{path} has {rows} rows, and {what} at most {limits.rows}")
        if sum(column.total_uncompressed_size for column in columns) > limits.unfolded_bytes:
            raise _unfolds(path, limits)


def _sendable(path: Path, table: pa.Table, limits: Limits) -> pa.Buffer:
    """The table in the columns of a run, without texts that are too long. Nothing is unfolded before its size is known."""
    table.validate(full=True)
    unfolded = table.nbytes
    for name, texts in _texts(table):
        lengths = pc.binary_length(texts.dictionary)
        longest = pc.max(lengths).as_py() or 0
        if longest > limits.text_bytes:
            raise RunFileError(f"{path} has a text of {longest} bytes in {name}, and a run at most {limits.text_bytes}")
        unfolded += pc.sum(lengths.take(texts.indices)).as_py() or 0
    if unfolded > limits.unfolded_bytes:
        raise _unfolds(path, limits)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_table(table.replace_schema_metadata(None).cast(SCHEMA))
    return sink.getvalue()


def _texts(table: pa.Table) -> Iterator[tuple[str, pa.DictionaryArray]]:
    """All texts of a table, by column."""
    for name in TEXTS:
        yield from ((name, chunk) for chunk in table.column(name).chunks)
    for name in MAPS:
        yield from ((name, part) for chunk in table.column(name).chunks for part in (chunk.keys, chunk.items))


def _printable(text: str) -> str:
    """The beginning of a text, with a question mark for each letter that cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def _unfolds(path: Path, limits: Limits) -> RunFileError:
    return RunFileError(f"{path} unfolds to more than {limits.unfolded_bytes // 2**20} MB, as no run does")
