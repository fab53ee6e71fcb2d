"""Files that a reader sees whole or not at all, whenever the writer is interrupted or killed."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from glob import escape
from itertools import count
from pathlib import Path

import psutil

SUFFIX = ".partial"
MAX_PREFIX = 100
"""Characters of a file's name that its other name begins with."""
WRITER = re.compile(rf"\.([0-9a-f]{{8}})-(\d+)\.[^.]*{re.escape(SUFFIX)}$")
"""Which machine and which process the other name says is writing the file."""
ABANDONED = 24 * 60 * 60
"""Seconds after which nobody is writing a file any more."""


@contextmanager
def created(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """Another name to write a file under. When the block ends without an error, the file is at `path`, whole and on the disk.

    A file that is already at `path` stays as it is. The other name is in the folder `scratch`, on the same disk, or beside
    `path`. A kill leaves it behind, until something in that folder is :func:`replaced`.
    """
    with _written(path, scratch) as partial:
        yield partial
        _flush(partial)
        _link(partial, path)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """The same, except that the new file takes the place of one that is already at `path`.

    What killed processes left in that folder is removed.
    """
    with _written(path, None) as partial:
        _remove_dead(partial)
        yield partial
        _flush(partial)
        partial.replace(path)


def set_aside(path: Path) -> Path:
    """Give a damaged file, which stands where another one belongs, a name that nothing has; returns that."""
    aside = next(place for n in count(1) if not (place := path.with_name(f"{path.name}.damaged-{n}")).exists())
    path.rename(aside)
    return aside


def remove_partial(path: Path) -> None:
    """Remove what killed processes left beside `path`. Only for a file that no other process may be writing now."""
    for partial in path.parent.glob(f"{escape(_prefix(path))}*{SUFFIX}"):
        partial.unlink(missing_ok=True)


@contextmanager
def _written(path: Path, scratch: Path | None) -> Iterator[Path]:
    prefix = f"{_prefix(path)}{_machine()}-{os.getpid()}."
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=SUFFIX, dir=scratch or path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _remove_dead(partial: Path) -> None:
    """Remove the files in the folder of `partial`, just made, whose writers are dead.

    A process of this machine is asked for. That of another one counts as dead after a day, by the clock of the disk.
    """
    for other in partial.parent.glob(f".*{SUFFIX}"):
        if found := WRITER.search(other.name):
            machine, process = found.groups()
            with suppress(OSError):  # it has got its name meanwhile, or belongs to somebody else
                if machine == _machine():
                    dead = not psutil.pid_exists(int(process))
                else:
                    dead = partial.stat().st_mtime - other.stat().st_mtime > ABANDONED
                if dead:
                    other.unlink()


@cache
def _machine() -> str:
    """Eight characters that other machines do not have, nor other containers, whose processes have numbers of their own."""
    with suppress(OSError):
        return hashlib.sha256(f"{platform.node()} {os.stat('/proc/self/ns/pid').st_ino}".encode()).hexdigest()[:8]
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _prefix(path: Path) -> str:
    """The beginning of the other name, short enough that a file of the longest name can be written."""
    return f".{path.name[:MAX_PREFIX]}."


def _flush(partial: Path) -> None:
    """Bring the content to the disk before the file gets its name, so that a power loss leaves no empty file of that name."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.chmod(0o644)


def _link(partial: Path, path: Path) -> None:
    """Give a finished file its name. Linking, unlike renaming, never replaces a file; not every file system can."""
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError:
        if not path.exists():
            partial.rename(path)
