"""Atomic writes: a reader sees a file whole or not at all, whenever the writer is interrupted or killed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

MAX_PREFIX = 100
"""Characters of a file's name in its temporary name, short enough for files with the longest name of a file system."""


@contextmanager
def created(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """Temporary name for a new file. After the block, without an error, the file is at `path`, flushed to the disk.

    A file that exists at `path` stays. The temporary file is in `scratch`, a folder on the same disk, or beside `path`. A
    killed process leaves it behind.
    """
    with _temporary(path, scratch) as partial:
        yield partial
        _flush(partial)
        _link(partial, path)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Temporary name for a file that replaces the file at `path` after the block, if there was no error."""
    with _temporary(path, None) as partial:
        yield partial
        _flush(partial)
        partial.replace(path)


def set_aside(path: Path) -> Path:
    """New name of a damaged file, which is renamed to make room."""
    aside = next(place for n in count(1) if not (place := path.with_name(f"{path.name}.damaged-{n}")).exists())
    path.rename(aside)
    return aside


@contextmanager
def _temporary(path: Path, scratch: Path | None) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:MAX_PREFIX]}.", suffix=".partial", dir=scratch or path.parent)
    os.close(handle)  # pyarrow and others open the file by its name
    partial = Path(name)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _flush(partial: Path) -> None:
    """Bring the content to the disk before the file gets its name, so that a power loss leaves no empty file of that name."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.chmod(0o644)  # mkstemp makes files that no other user can read


def _link(partial: Path, path: Path) -> None:
    """Give a finished file its name. Unlike a rename, a link never replaces a file, but some file systems have none."""
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError:
        if not path.exists():
            partial.rename(path)
