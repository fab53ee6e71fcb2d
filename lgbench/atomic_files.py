"""Files that a reader sees whole or not at all, whenever the writer is interrupted or killed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from itertools import count
from pathlib import Path

SUFFIX = ".partial"
MAX_PREFIX = 100
"""Characters of a file's name that its other name begins with."""


@contextmanager
def created(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """Another name to write a file under. When the block ends without an error, the file is at `path`, whole and on the disk.

    A file that is already at `path` stays as it is. The other name is in the folder `scratch`, on the same disk, or beside
    `path`; a kill leaves it behind.
    """
    with _written(path, scratch) as partial:
        yield partial
        _flush(partial)
        _link(partial, path)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """The same, except that the new file takes the place of one that is already at `path`."""
    with _written(path, None) as partial:
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
    handle, name = tempfile.mkstemp(prefix=_prefix(path), suffix=SUFFIX, dir=scratch or path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


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
