"""Lock files for mutual exclusion of processes on any file system shared by several machines.

On many network file systems, locks of the operating system work within one machine only. A lock here is a file, created by
exactly one process. The holder touches the file every BEAT_SECONDS. A lock is stale if the holder has ended on this machine, or
if the latest touch is older than STALE_SECONDS; the next process then takes over. A holder suspended for longer may wake up
later, so work under a lock must be harmless when done by two processes.
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
"""Suffix of a stale lock during removal."""
_CONTENT = re.compile(r"(?P<machine>[0-9a-f]{8}) (?P<pid>\d+) [0-9a-f]{32}")


class Lock:
    """Lock file of this process, kept alive by a thread until :meth:`release`. A context manager: the exit releases."""

    def __init__(self, path: Path, content: str) -> None:
        """Lock with the `content` of the file at `path`, created by this process in :meth:`take`."""
        self.path, self._content = path, content
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._touch, name=f"heartbeat of {path.name}", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """Lock at `path`; None while another process holds the lock. Makes the folder of `path`."""
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
        """Lock at `path`, after a wait for other processes."""
        while not (lock := cls.take(path)):
            time.sleep(WAIT_SECONDS)
        return lock

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Whether this process still holds the lock: no other process has taken over."""
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
            with suppress(OSError):  # the file system may recover before the lock is stale
                if self.is_held:
                    os.utime(self.path)  # a touch would keep another's lock alive


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock at `path`."""
    found = _read(path)
    return found is not None and not _is_stale(path, *found)


@cache
def machine() -> str:
    """Identifier of machine and container, eight hexadecimal digits. Processes with equal identifiers see each other."""
    about = platform.node()
    with suppress(OSError):
        about += f" {os.stat('/proc/self/ns/pid').st_ino}"  # containers on one machine do not see each other's processes
    return hashlib.sha256(about.encode()).hexdigest()[:8]


def is_running(pid: int) -> bool:
    """Whether a process of this machine is running."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _create(path: Path) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process has just removed the empty folder
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def _read(path: Path) -> tuple[str, float] | None:
    """Content of a lock file, and the time of its latest touch; None without a file."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:  # unlike stat, open asks the server of a network folder
            return file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None


def _is_stale(path: Path, content: str, touched: float) -> bool:
    # Empty before the holder has written the file. If the holder was killed before, the lock is stale after STALE_SECONDS as
    # any lock of an unknown process, so it blocks its population for a minute at most.
    holder = _CONTENT.fullmatch(content)
    if holder and holder["machine"] == machine() and not is_running(int(holder["pid"])):
        return True
    # Clocks of machines differ, so a new file on the same file system gives the time.
    # The folder, and so the lock, may be gone.
    with suppress(FileNotFoundError), tempfile.TemporaryFile(dir=path.parent) as file:
        return os.fstat(file.fileno()).st_mtime - touched > STALE_SECONDS
    return False


def _remove_stale(path: Path, content: str) -> None:
    """Remove the lock file with this content. The file system lets only one of several processes rename the file."""
    aside = path.with_name(f"{uuid4().hex}{STALE}")
    with suppress(FileNotFoundError):
        path.rename(aside)
        found = _read(aside)
        if found and found[0] != content:  # another process was faster, and the renamed file is its new lock: restore the file
            with suppress(OSError):
                os.link(aside, path)  # unlike a rename, never replaces a newer lock
        aside.unlink()
