"""The process that reads strangers' files for :mod:`lgbench.audit.untrusted`: within limits, and with a reason otherwise."""

from __future__ import annotations

import contextlib
import json
import signal
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lgbench.errors import RunFileError, first_line
from lgbench.runfiles import METADATA_KEY, SCHEMA

READY = b"ready\n"
"""What the process says when it has started."""

TEXTS = [field.name for field in SCHEMA if pa.types.is_string(field.type)]


@dataclass(frozen=True)
class Limits:
    """What one file may take: many times what an honest run does, and little for any machine."""

    file_bytes: int = 16 * 2**20
    footer_bytes: int = 256 * 2**10
    """Of the metadata alone."""
    rows: int = 1_000_000
    row_groups: int = 1000
    unfolded_bytes: int = 64 * 2**20
    """Of all columns, as the file declares it and as they turn out to be, texts that repeat counted once."""
    text_bytes: int = 1000
    """Of each text in a column."""
    memory: int = 512 * 2**20
    """Beyond what the child has before it opens a file."""
    seconds: float = 30.0


def serve() -> None:
    """For each line of standard input, a file to read, one answer on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which then ends this process
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
    """Let no allocation succeed that takes this process `more` bytes beyond what it has, where a system can do that."""
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
    about = pq.read_metadata(pa.BufferReader(content))
    _check_columns(path, about.schema.to_arrow_schema())
    _check_sizes(path, about, limits)
    footer = (about.metadata or {}).get(METADATA_KEY)
    if footer is None:
        raise RunFileError(f"{path} is not a run of lgbench: its footer has no metadata")
    if len(footer) > limits.footer_bytes:
        raise RunFileError(f"{path} has {len(footer)} bytes of metadata, and a run at most {limits.footer_bytes}")
    if not rows:
        return [footer, b""]
    table = pq.ParquetFile(pa.BufferReader(content), read_dictionary=TEXTS).read(use_threads=False)
    return [footer, _sendable(path, table, limits)]


def _bytes_of(path: Path, limits: Limits) -> bytes:
    """All of a regular file, read once, so that it cannot become another one between two looks."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RunFileError(f"{path} is no file, and a run is one")
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
    """Exactly the columns of a run. Raises RunFileError that names what differs."""
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
    """What the file declares, before anything is unfolded."""
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
    table.validate(full=True)
    for name in TEXTS:
        for chunk in table.column(name).chunks:
            longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
            if longest > limits.text_bytes:
                raise RunFileError(f"{path} has a text of {longest} bytes in {name}, and a run at most {limits.text_bytes}")
    table = table.unify_dictionaries().combine_chunks()
    if table.nbytes > limits.unfolded_bytes:
        raise _unfolds(path, limits)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _printable(text: str) -> str:
    """As short as a sentence needs, and without whatever of the file cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def _unfolds(path: Path, limits: Limits) -> RunFileError:
    return RunFileError(f"{path} unfolds to more than {limits.unfolded_bytes // 2**20} MB, as no run does")
