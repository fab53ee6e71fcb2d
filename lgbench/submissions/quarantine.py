"""The process that reads strangers' files for :mod:`lgbench.submissions.reader`, within limits. It says why it refuses one."""

from __future__ import annotations

import contextlib
import json
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lgbench.errors import RunFileError, first_line
from lgbench.results.run_files import METADATA_KEY, SCHEMA, damaged, is_sealed

READY = b"ready\n"
"""What the process says when it has started."""

TEXTS = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
MAPS = [field.name for field in SCHEMA if pa.types.is_map(field.type)]


@dataclass(frozen=True)
class Limits:
    """How large one file may be: many times an honest run, and little for any machine."""

    file_bytes: int = 16 * 2**20
    footer_bytes: int = 256 * 2**10
    """Of the metadata alone."""
    rows: int = 1_000_000
    row_groups: int = 1000
    unfolded_bytes: int = 64 * 2**20
    """Of all columns: as the file declares them, and in memory, where each row has its own copy of a text."""
    text_bytes: int = 1000
    """Of each text in a column."""
    memory: int = 512 * 2**20
    """In addition to what the process has before it opens a file."""
    seconds: float = 30.0


def serve() -> None:
    """Each line of standard input names a file to read. Standard output has one answer to each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent takes Ctrl-C, and then ends this process
    limits = Limits(**json.loads(sys.argv[1]))
    pa.set_memory_pool(pa.system_memory_pool())  # others reserve memory far ahead, which counts against the limit
    _limit_memory(limits.memory)
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        for part in _answer(Path(request["path"]), request["rows"], limits):
            out.write(part)
        out.flush()


def _limit_memory(more: int) -> None:
    """Let no allocation succeed that takes this process `more` bytes beyond what it has, where the system can do that."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = psutil.Process().memory_info().vms + more
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(path: Path, rows: bool, limits: Limits) -> list[Any]:
    problem, parts = None, [b"", b""]
    try:
        parts = _contents(path, rows, limits)
    except MemoryError:
        problem = f"{path} takes more than {limits.memory // 2**20} MB of memory to read, as no run file does"
    except RunFileError as error:
        problem = str(error)
    except Exception as error:  # whatever a reader raises over a broken file
        problem = f"{path} is no readable Parquet file ({_printable(first_line(error))})"
    head = {"problem": problem, "sizes": [len(part) for part in parts]}
    return [json.dumps(head).encode() + b"\n", *parts]


def _contents(path: Path, rows: bool, limits: Limits) -> list[Any]:
    content = _bytes_of(path, limits)
    as_written = is_sealed(content)
    if as_written is False:
        raise RunFileError(damaged(path))
    about = pq.read_metadata(pa.BufferReader(content))
    _check_columns(path, about.schema.to_arrow_schema())
    _check_sizes(path, about, limits)
    footer = (about.metadata or {}).get(METADATA_KEY)
    if footer is None:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no metadata")
    if as_written is None:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no checksum")
    if len(footer) > limits.footer_bytes:
        raise RunFileError(f"{path} has {len(footer)} bytes of metadata, and a run at most {limits.footer_bytes}")
    if not rows:
        return [footer, b""]
    coded = TEXTS + [f"{name}.key_value.{part}" for name in MAPS for part in ("key", "value")]
    table = pq.ParquetFile(pa.BufferReader(content), read_dictionary=coded).read(use_threads=False)
    return [footer, _sendable(path, table, limits)]


def _bytes_of(path: Path, limits: Limits) -> bytes:
    """All of a regular file, read once, so that nobody can change it between two readings."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RunFileError(f"{path} is no regular file")
        with path.open("rb") as file:
            content = file.read(limits.file_bytes + 1)
    except OSError as error:
        raise RunFileError(f"{path} cannot be opened: {error.strerror}") from error
    if not content:
        raise RunFileError(f"{path} is empty")
    if len(content) > limits.file_bytes:
        raise RunFileError(f"{path} is larger than {limits.file_bytes // 2**20} MB, and no run is")
    return content


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


def _check_sizes(path: Path, about: pq.FileMetaData, limits: Limits) -> None:
    """Raises RunFileError where the file declares more than a run has, before anything is unfolded."""
    if not about.num_rows:
        raise RunFileError(f"{path} has no rows")
    if about.num_row_groups > limits.row_groups:
        raise RunFileError(f"{path} has {about.num_row_groups} row groups, and a run at most {limits.row_groups}")
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    rows = max(about.num_rows, sum(group.num_rows for group in groups), *(column.num_values for column in columns))
    if rows > limits.rows:
        raise RunFileError(f"{path} has {rows} rows, and a run at most {limits.rows}")
    unfolded = sum(column.total_uncompressed_size for column in columns)
    if unfolded > limits.unfolded_bytes:
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
