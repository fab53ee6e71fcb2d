"""Lock files: one process at a time does a piece of work, on any file system that several machines share.

Locks of the operating system are known to one machine alone on many network file systems. Here a lock is a file, which one
process alone can create. Its holder touches it every BEAT_SECONDS. The lock of a process that has ended on this machine, or
of one that has not touched it for STALE_SECONDS, is stale, and the next process takes over. A process that was stopped for so
long may go on afterwards, so work under a lock must be harmless when two processes do it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from uuid import uuid4

import psutil

BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
WAIT_SECONDS = 0.1
"""Time between two attempts of :meth:`Lock.waited_for`."""
STALE = ".stale"
"""Suffix of a stale lock that is being removed."""
_CONTENT = re.compile(r"(?P<machine>[0-9a-f]{8}) (?P<pid>\d+) [0-9a-f]{32}")


class Lock:
    """Lock file of this process, until :meth:`release`. A thread touches the file. A context manager: its end releases."""

    def __init__(self, path: Path, content: str) -> None:
        """`content` of the file at `path`, which this process has created; see :meth:`take`."""
        self.path, self._content = path, content
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._touch, name=f"heartbeat of {path.name}", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """Lock at `path`, whose folder is made; None while another process holds the lock."""
        if found := _read(path):
            if not _is_stale(path, *found):
                return None
            _remove_stale(path, found[0])
        content = f"{machine()} {os.getpid()} {uuid4().hex}"
        try:
            handle = _create(path)
        except FileExistsError:
            return None
        with open(handle, "w", encoding="ascii") as file:
            file.write(content)
        return cls(path, content)

    @classmethod
    def waited_for(cls, path: Path) -> Lock:
        """Lock at `path`, as soon as no other process holds the lock."""
        while not (lock := cls.take(path)):
            time.sleep(WAIT_SECONDS)
        return lock

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Whether no other process has taken over."""
        found = _read(self.path)
        return found is not None and found[0] == self._content

    def release(self) -> None:
        """Remove the lock file, unless another process has taken over."""
        self._released.set()
        self._thread.join()
        if self.is_held:
            self.path.unlink(missing_ok=True)

    def _touch(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            with suppress(OSError):  # the file system may answer again before the lock is stale
                if self.is_held:
                    os.utime(self.path)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock at `path`."""
    found = _read(path)
    return found is not None and not _is_stale(path, *found)


@cache
def machine() -> str:
    """Eight characters, equal for processes that see each other: of one machine, and of one container on it."""
    about = platform.node()
    with suppress(OSError):
        about += f" {os.stat('/proc/self/ns/pid').st_ino}"
    return hashlib.sha256(about.encode()).hexdigest()[:8]


def is_running(pid: int) -> bool:
    """Whether a process of this machine has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _create(path: Path) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process has just removed the folder, which was empty
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def _read(path: Path) -> tuple[str, float] | None:
    """Content of a lock file, and the time of its latest touch; None without a file."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:  # to open, unlike stat, asks the server of a network folder
            return file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None


def _is_stale(path: Path, content: str, touched: float) -> bool:
    holder = _CONTENT.fullmatch(content)  # none while the holder has not written it yet
    if holder and holder["machine"] == machine() and not is_running(int(holder["pid"])):
        return True
    # The clocks of machines differ, so the time now is that of a new file on the same file system.
    with suppress(FileNotFoundError), tempfile.TemporaryFile(dir=path.parent) as file:
        return os.fstat(file.fileno()).st_mtime - touched > STALE_SECONDS
    return False


def _remove_stale(path: Path, content: str) -> None:
    """Remove the lock file with this content. Of several processes that try, the file system lets one rename the file."""
    aside = path.with_name(f"{uuid4().hex}{STALE}")
    with suppress(FileNotFoundError):
        path.rename(aside)
        found = _read(aside)
        if found and found[0] != content:  # another process was faster, and this is its new lock: give it back
            with suppress(OSError):
                os.link(aside, path)
        aside.unlink()
