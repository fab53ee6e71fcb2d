"""Reading files that strangers made, in a child process with little memory and little time.

A Parquet file of a few kilobytes can unfold to gigabytes, and a broken one can crash its reader. Either ends the child alone.
The child answers with text and numbers. Nothing in a file is ever executed, and no name in it is looked up here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from lgbench.errors import RunFailed, RunFileError
from lgbench.submissions.quarantine import READY, Limits

_MAX_HEAD = 2**16
"""Bytes of the first line of an answer."""
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Packed:
    """The id and the digest of a run, which a submission file has beside the run's footer."""

    run_id: str
    content: str
    """The :func:`lgbench.results.footers.digest` of footer and rows."""


@dataclass(frozen=True)
class Contents:
    """The content of a file that belongs to one run."""

    footer: bytes
    """The metadata, which may be anything."""
    rows: pa.Table | None
    """In the schema of run files; None if nobody asked for them."""
    packed: Packed | None = None
    """Of a run in a submission file."""


class Reader:
    """A child process that reads one file after the other. After a file that ends it, the next one gets a new child.

    A context manager, which ends the child.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._child: subprocess.Popen[bytes] | None = None
        self._busy = False

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def read(self, path: Path) -> Contents:
        """The run of a run file. Raises RunFileError with the reason where it is none, or too large."""
        with contextlib.closing(self.runs(path)) as runs:
            run, more = next(runs), next(runs, None)
        if run.packed or more:
            raise RunFileError(f"{path} is a submission file, and a run file is expected here")
        return run

    def runs(self, path: Path, *, rows: bool = True, only: Collection[str] | None = None) -> Generator[Contents, None, None]:
        """The runs of a run file or a submission file, one after the other; of a submission file those with the ids `only`.

        Raises RunFileError with the reason where it is neither, or too large. What came before it is right all the same.
        """
        if self._busy:  # somebody has not taken all runs of another file
            self._end()
        child = self._child = self._child or self._started()
        self._busy = True
        request = {"path": os.fspath(path), "rows": rows, "only": None if only is None else sorted(only)}
        finished = False
        try:
            while not finished:
                late = threading.Event()
                with _deadline(child, self.limits.seconds, late):
                    answer = _asked(child, request)
                request = {}
                if answer is None:
                    how = f"took more than {self.limits.seconds:g} s" if late.is_set() else "broke down"
                    raise RunFileError(f"{path} cannot be read: the process that read it {how}; no run file causes that")
                finished = isinstance(answer, _Last)
                if isinstance(answer, Contents):
                    yield answer
                elif answer.problem:
                    raise RunFileError(answer.problem)
        finally:
            if self._child is child:
                self._busy = False
                if not finished:
                    self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        # -P: modules in the current folder, such as one among submitted files, are not imported.
        words = [sys.executable, "-P", "-c", "from lgbench.submissions.quarantine import serve; serve()"]
        child = subprocess.Popen(
            [*words, json.dumps(asdict(self.limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert child.stdout
        with _deadline(child, _START_SECONDS, threading.Event()):
            ready = child.stdout.readline(len(READY)) == READY
        if not ready:
            _ended(child)
            raise RunFailed(f"the process that reads files does not start; to see why, run {' '.join(words[:3])} '{words[3]}'")
        return child

    def _end(self) -> None:
        if self._child:
            _ended(self._child)
        self._child, self._busy = None, False


@contextlib.contextmanager
def _deadline(child: subprocess.Popen[bytes], seconds: float, late: threading.Event) -> Iterator[None]:
    """Kill the child and set `late` if the block takes longer."""

    def end() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass(frozen=True)
class _Last:
    """The child has no further run of a file to send."""

    problem: str | None


def _asked(child: subprocess.Popen[bytes], request: dict[str, Any]) -> Contents | _Last | None:
    """The child's next answer, to a request if there is a new one: a run, the end, or None if it did not answer."""
    assert child.stdin and child.stdout
    try:
        if request:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        head = json.loads(child.stdout.readline(_MAX_HEAD))
        if "last" in head:
            return _Last(head["problem"])
        footer, rows = (child.stdout.read(size) for size in head["sizes"])
        if [len(footer), len(rows)] != head["sizes"]:
            return None
        packed = Packed(**head["run"]) if head["run"] else None
        return Contents(footer, pa.ipc.open_stream(rows).read_all() if rows else None, packed)
    except (OSError, ValueError):  # it died before or while it answered
        return None


def _ended(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):  # a request that was not sent before it died
            if pipe:
                pipe.close()
    child.wait()
