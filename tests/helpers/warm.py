"""Processes that start at once: forked from one that has imported lgbench, torch and the built-in plugins.

An interpreter takes seconds to import torch, and what tests of real processes want is a process: one that can be killed at
any moment, holds locks, and shares nothing with the test but the disk. Where imports themselves are tested, see
`helpers.processes.python`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import IO

import pytest

from helpers.folders import TESTS
from helpers.processes import COMMAND

SERVER = """
import json, os, socket, sys, traceback
import pytest
from importlib.metadata import entry_points
import torch._dynamo, torch.utils.flop_counter  # the first gradient and the first count of operators import them
import lgbench.execution.command, lgbench.execution.progress, lgbench.reports.curves
from lgbench.cli.main import main
sys.path.insert(0, sys.argv[2])
from helpers.in_process import train_here
train_here(pytest.MonkeyPatch())  # a worker would be another process, which takes seconds to start
del sys.path[0]
for entry_point in entry_points(group="lgbench"):
    if entry_point.dist.name == "lgbench":
        entry_point.load()

server = socket.socket(fileno=int(sys.argv[1]))


def become(asked, out, error):
    '''In the child: the interpreter that was asked for, as far as the code can tell.'''
    server.close()
    os.dup2(out, 1), os.dup2(error, 2), os.close(out), os.close(error)
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.path[:0] = [path for path in asked["environ"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = ["-c", *asked["arguments"]]
    sys.stdout, sys.stderr = (open(handle, "w", buffering=1, closefd=False) for handle in (1, 2))
    try:
        exec(compile(asked["code"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)


while True:
    message, handles, _, _ = socket.recv_fds(server, 2**20, 2)
    if not message:
        break
    asked = json.loads(message)
    if asked["do"] == "start":
        child = os.fork()
        if child == 0:
            become(asked, *handles)
        for handle in handles:
            os.close(handle)
        answer = child
    else:
        pid, status = os.waitpid(asked["pid"], os.WNOHANG)
        answer = os.waitstatus_to_exitcode(status) if pid else None
    server.send(json.dumps(answer).encode())
"""
"""Answers a JSON object with a JSON value: "start" gives the id of a new process, "poll" what :meth:`Process.poll` does."""


DIES = """
import os, signal, sys
from os import kill  # while lgbench loads plugins, os.kill is another function
from lgbench.cli.main import main
CHANGES = {"os.mkdir", "os.link", "os.utime", "os.rename", "os.remove", "os.rmdir", "os.truncate"}
left = iter(range(POINT))

def watch(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if (writes or event in CHANGES) and next(left, None) is None:
        kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
main(prog_name="lgbench")
"""
"""Command that kills itself when it is about to change something on the disk, POINT changes after the first."""


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """The process that others are forked from, started when the first test asks for it."""
    process = Warm()
    yield process
    process.close()


class Warm:
    """The process that others are forked from."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-c", SERVER, str(other.fileno()), str(TESTS)]
        self.process = subprocess.Popen(command, pass_fds=[other.fileno()])
        other.close()

    def start(self, arguments: Sequence[object], code: str = COMMAND, **environ: str) -> Process:
        """A process that runs `code` with these arguments, and this in its environment besides what is in ours."""
        (out, out_end), (error, error_end) = os.pipe(), os.pipe()
        about = {"arguments": [str(argument) for argument in arguments], "code": code, "environ": {**os.environ, **environ}}
        pid = self.ask([out_end, error_end], do="start", **about)
        for end in (out_end, error_end):
            os.close(end)
        return Process(self, pid, os.fdopen(out, encoding="utf-8"), os.fdopen(error, encoding="utf-8"))

    def ask(self, handles: Sequence[int] = (), **message: object) -> int:
        socket.send_fds(self.socket, [json.dumps(message).encode()], handles)
        answer = self.socket.recv(2**16)
        assert answer, "the process that others are forked from has ended"
        return json.loads(answer)

    def close(self) -> None:
        self.process.kill()  # its own end takes seconds
        self.process.wait()
        self.socket.close()


class Process:
    """A started process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, warm: Warm, pid: int, stdout: IO[str], stderr: IO[str]) -> None:
        self.warm, self.pid, self.stdout, self.stderr = warm, pid, stdout, stderr
        self.returncode: int | None = None

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """It does not outlive the block."""
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()

    def poll(self) -> int | None:
        """How it ended, minus the signal's number where one did it; None if it has not."""
        if self.returncode is None:
            self.returncode = self.warm.ask(do="poll", pid=self.pid)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = 60) -> int:
        ends = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < ends, f"process {self.pid} still runs after {timeout:.0f} s"
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """Return the rest of its output and error, and wait for its end."""
        with ThreadPoolExecutor(2) as readers:
            out, error = (readers.submit(stream.read) for stream in (self.stdout, self.stderr))
            said = out.result(timeout), error.result(timeout)
        self.wait(timeout)
        return said


def dies(warm: Warm, command: Sequence[object], point: int, first: str = "", **environ: str) -> bool:
    """Whether a command dies before that change of the disk, after some code. False where it ends well before."""
    with warm.start(command, first + DIES.replace("POINT", str(point)), **environ) as process:
        _, error = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), error
        return process.returncode != 0
