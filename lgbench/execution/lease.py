"""Leases: one process at a time holds a folder, on any file system that several machines share.

No lock of the operating system is used, for on many network file systems it is known to one machine alone. The name of the
folder says who holds it. A process takes the folder of a dead holder by renaming it: of several that try, the file system
lets one succeed. All that the old holder would still write into the folder, should it be alive after all, then fails: its
path is gone.

A holder raises a number in the folder every few seconds. Others watch the number by their own clocks, so that the clocks of two
machines are never compared. On the holder's machine they ask the operating system instead, whose answer comes at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import psutil

from lgbench.errors import RunFailed

BEAT_SECONDS = 5.0
"""Between two heartbeats of a holder."""
LEASE_SECONDS = 60.0
"""A holder on another machine, or one that is stopped, is taken for dead after so many seconds without a heartbeat."""
HEARTBEAT = "heartbeat"
GONE = ".gone"
"""The end of the name of a folder that is being removed."""
_DIGITS = 20
_HOLDER = re.compile(r"(?P<machine>[0-9a-f]{12})-(?P<pid>\d+)-(?P<started>\d+)-[0-9a-f]{6}")


class LeaseLost(RunFailed):
    """Another process has taken the folder: this one was stopped, or cut off from the file system, for too long."""

    @classmethod
    def of(cls, folder: Path) -> LeaseLost:
        how = f"this one was stopped for {LEASE_SECONDS:.0f} s or longer"
        return cls(f"another process has taken over {name_of(folder)}: {how}")


class Held(Protocol):
    """A folder that this process may write to as long as this command holds it."""

    @property
    def folder(self) -> Path: ...

    @property
    def lost(self) -> bool:
        """Whether another command is known to have the folder."""

    def require(self) -> None:
        """Raise LeaseLost unless this command holds the folder now."""


class Lent:
    """A folder that another process of this command holds, for a worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._looked = time.monotonic()
        self._lost = False

    @property
    def lost(self) -> bool:
        """Looks once in BEAT_SECONDS."""
        now = time.monotonic()
        if now - self._looked >= BEAT_SECONDS:
            self._looked = now
            self._lost = self._lost or not (self.folder / HEARTBEAT).exists()
        return self._lost

    def require(self) -> None:
        if self._lost or not (self.folder / HEARTBEAT).exists():
            raise LeaseLost.of(self.folder)


class Lease:
    """A folder that this process holds, until :meth:`park` or :meth:`remove`. A thread writes its heartbeat."""

    def __init__(self, folder: Path) -> None:
        """`folder` has this process's name already; see :func:`make` and :func:`take`."""
        self.folder = folder
        self._count = 0
        self._ended = threading.Event()
        self._lost = threading.Event()
        (folder / HEARTBEAT).touch()
        self._thread = threading.Thread(target=self._keep_beating, name=f"heartbeat of {folder.name}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Whether another process is known to have the folder. The next heartbeat finds out."""
        return self._lost.is_set()

    @property
    def ended(self) -> bool:
        """Whether this process gave the folder back, or removed it."""
        return self._ended.is_set()

    def require(self) -> None:
        """Raise LeaseLost unless this process holds the folder now. To be called before anything is written elsewhere."""
        self._beat()
        if self.lost:
            raise LeaseLost.of(self.folder)

    def park(self) -> None:
        """Give the folder back, with all that is in it. Whoever wants it can take it."""
        self._end()
        with suppress(FileNotFoundError):  # another process has taken it
            self.folder.rename(self.folder.with_name(name_of(self.folder)))

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        self._end()
        gone = self.folder.with_name(f"{name_of(self.folder)}{GONE}")
        with suppress(FileNotFoundError):  # another process has taken it
            self.folder.rename(gone)
            remove_tree(gone)

    def _end(self) -> None:
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _keep_beating(self) -> None:
        while not self._ended.wait(BEAT_SECONDS) and not self.lost:
            with suppress(OSError):  # the file system may answer again before the lease ends
                self._beat()

    def _beat(self) -> None:
        """Raise the number in place: it needs no room on the disk, and no file that another process made is created again."""
        self._count += 1
        try:
            handle = os.open(self.folder / HEARTBEAT, os.O_WRONLY)
        except FileNotFoundError:
            self._lost.set()
            return
        try:
            os.pwrite(handle, f"{self._count:{_DIGITS}d}".encode(), 0)
        finally:
            os.close(handle)


class Watch:
    """One process's record of the heartbeats of others."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[bytes, float]] = {}

    def is_dead(self, folder: Path) -> bool:
        """Whether the holder of a folder is dead: its process has ended, or its heartbeat stood still for LEASE_SECONDS."""
        holder = _HOLDER.fullmatch(_holder_of(folder))
        if holder and holder["machine"] == _machine() and _started(int(holder["pid"])) != holder["started"]:
            return True
        try:
            count = (folder / HEARTBEAT).read_bytes()
        except OSError:  # it was given back or taken in the meantime, or its holder is about to write the first
            count = b""
        return self.stands_still(folder.name, count)

    def stands_still(self, name: str, content: bytes) -> bool:
        """Whether `content` has been the same for LEASE_SECONDS, each time that this process looked."""
        now = time.monotonic()
        before, since = self._seen.get(name, (None, now))
        if before != content:
            self._seen[name] = content, now
            return False
        return now - since >= LEASE_SECONDS


def make(parent: Path) -> Lease:
    """A new folder that this process holds."""
    folder = parent / f"{uuid4().hex[:16]}.{_own_name()}"
    while True:
        try:
            folder.mkdir(parents=True)
        except FileNotFoundError:  # another process has just removed the parent, which was empty
            continue
        return Lease(folder)


def take(folder: Path) -> Lease | None:
    """Take a folder that nobody holds, or whose holder is dead. None where another process was faster."""
    mine = folder.with_name(f"{name_of(folder)}.{_own_name()}")
    try:
        folder.rename(mine)
    except FileNotFoundError:
        if not mine.exists():  # a network file system may do it, lose the answer, and fail when it tries again
            return None
    return Lease(mine)


def is_parked(folder: Path) -> bool:
    """Whether nobody holds the folder."""
    return not _holder_of(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder. On a network file system, files that are open somewhere stay under another name for a while."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink(missing_ok=True)
        folder.rmdir()


def name_of(folder: Path) -> str:
    """A folder's lasting name, whoever holds it."""
    return folder.name.partition(".")[0]


def _holder_of(folder: Path) -> str:
    return folder.name.partition(".")[2]


def _own_name() -> str:
    """The machine and the process, and a number that no other lease has."""
    return f"{_machine()}-{os.getpid()}-{_started(os.getpid())}-{uuid4().hex[:6]}"


@cache
def _machine() -> str:
    """The same for two processes that can see each other: of one machine, since it was started, and of one container."""
    facts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            facts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text())
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def _started(pid: int) -> str | None:
    """When a process was started, in ticks of its machine; None where there is no such process, or it has ended."""
    try:
        if os.path.exists("/proc/self/stat"):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return fields[19] if fields[0] not in "ZX" else None
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time() * 100:.0f}"
    except (OSError, psutil.NoSuchProcess):
        return None
