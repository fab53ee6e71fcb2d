"""The user's cache folder: what can be made again, kept because making it takes time. Anybody may delete it at any time."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

KEPT_SECONDS = 30 * 24 * 3600.0
"""A file that nobody has used for so long is removed."""


VARIABLE = "LGBENCH_CACHE"
"""The environment variable that names another cache folder."""


def root() -> Path:
    """The cache folder, which may not exist yet. It is not absolute for a user without a home."""
    named = os.environ.get(VARIABLE)
    return Path(named).resolve() if named else user_cache_path("lgbench", appauthor=False)


def folder(name: str) -> Path | None:
    """The folder for one kind of files within the cache folder; None where it cannot be made."""
    path = root() / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK | os.X_OK) else None


def used(path: Path) -> None:
    """Note that a file was used now, so that it is kept."""
    with suppress(OSError):
        os.utime(path)


def remove_old(path: Path) -> None:
    """Remove the files of a folder that nobody has used for KEPT_SECONDS."""
    oldest = time.time() - KEPT_SECONDS
    with suppress(OSError):
        for file in path.iterdir():
            with suppress(OSError):
                if file.stat().st_mtime < oldest:
                    file.unlink()
