"""Lock files: one process has a lock, a dead or frozen one loses it, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lgbench import lock
from lgbench.lock import STALE, Lock, is_locked

STALE_SECONDS = 1.0
QUICK = f"""
import sys
from pathlib import Path
from lgbench import lock
lock.BEAT_SECONDS, lock.STALE_SECONDS = 0.05, {STALE_SECONDS}
"""
STRANGER = QUICK + "lock.machine = lambda: '01234567'\n"
"""Code of a process of another machine, which this machine cannot ask whether it lives."""
HOLDS = "held = lock.Lock.take(Path(sys.argv[1])); print(held is not None, flush=True)\n"
WAITS = "import signal; signal.pause()\n"


@pytest.fixture
def quick(monkeypatch) -> None:
    """Locks become stale soon in this process too."""
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(lock, "STALE_SECONDS", STALE_SECONDS)


@contextmanager
def started(code: str, *arguments: Path) -> Iterator[subprocess.Popen[str]]:
    """Process with this code, which does not outlive the block."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], text=True, **pipes) as process:
        yield process
        process.kill()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "folder" / "work.lock"


def until_stale(path: Path) -> float:
    """Seconds until the lock is stale."""
    started = time.monotonic()
    while is_locked(path):
        time.sleep(0.02)
        assert time.monotonic() - started < 30 * STALE_SECONDS
    return time.monotonic() - started


ELSEWHERE = f"89abcdef 1 {'0' * 32}"


def abandoned(path: Path, seconds: float = 100.0, content: str = ELSEWHERE) -> None:
    """Lock file of a process of another machine that touched it so long ago."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_one_process_holds_a_lock_until_its_release_which_leaves_nothing(path):
    assert not is_locked(path)
    held = Lock.take(path)
    assert held and held.is_held and is_locked(path)
    assert Lock.take(path) is None
    held.release()
    assert not is_locked(path) and list(path.parent.iterdir()) == []
    with Lock.waited_for(path) as again:
        assert again.is_held
    assert list(path.parent.iterdir()) == []


def test_the_lock_of_a_killed_process_of_this_machine_is_free_at_once(path):
    with started(QUICK + "lock.STALE_SECONDS = 1000\n" + HOLDS + WAITS, path) as holder:
        assert holder.stdout.readline() == "True\n"
        assert Lock.take(path) is None
        holder.kill()
        holder.wait()
    with Lock.take(path) as held:
        assert held.is_held


@pytest.mark.parametrize("age", [30.0, 90.0])
@pytest.mark.parametrize("content", [ELSEWHERE, "", "no lock of ours"])
def test_a_lock_of_another_machine_is_stale_after_a_minute_without_a_touch(path, age, content):
    abandoned(path, age, content)
    held = Lock.take(path)
    assert (held is not None) == (age > 60)
    if held:
        held.release()
        assert list(path.parent.iterdir()) == []


def test_the_age_of_a_lock_is_measured_by_the_clock_of_the_file_system(path, monkeypatch):
    abandoned(path, seconds=30)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert is_locked(path)


@pytest.mark.slow
def test_a_process_of_another_machine_keeps_its_lock_while_it_lives(path, quick):
    with started(STRANGER + HOLDS + WAITS, path) as holder:
        assert holder.stdout.readline() == "True\n"
        for _ in range(20):
            assert is_locked(path)
            time.sleep(STALE_SECONDS / 10)
        holder.kill()
        assert until_stale(path) > STALE_SECONDS / 2


@pytest.mark.parametrize("code", [QUICK, STRANGER], ids=["this machine", "another machine"])
def test_a_frozen_process_loses_its_lock_and_leaves_the_lock_of_the_next_one_alone(path, tmp_path, quick, code):
    go = tmp_path / "go"
    released = "import time\nwhile not Path(sys.argv[2]).exists():\n    time.sleep(0.01)\nprint(held.is_held); held.release()\n"
    with started(code + HOLDS + released, path, go) as holder:
        assert holder.stdout.readline() == "True\n"
        os.kill(holder.pid, signal.SIGSTOP)
        until_stale(path)
        mine = Lock.take(path)
        assert mine
        go.touch()
        os.kill(holder.pid, signal.SIGCONT)
        assert holder.communicate() == ("False\n", "")
    assert mine.is_held
    mine.release()
    assert list(path.parent.iterdir()) == []


def test_of_two_processes_that_find_a_stale_lock_one_takes_over(path, monkeypatch):
    """The slower one has seen the stale lock, and removes it when the faster one has its own already."""
    abandoned(path)
    remove, faster = lock._remove_stale, []

    def late(*arguments):
        monkeypatch.setattr(lock, "_remove_stale", remove)
        faster.append(Lock.take(path))
        remove(*arguments)

    monkeypatch.setattr(lock, "_remove_stale", late)
    assert Lock.take(path) is None
    (held,) = faster
    assert held.is_held and [found for found in path.parent.iterdir() if found.suffix == STALE] == []
    held.release()


TAKES_TURNS = """
import sys, time
from pathlib import Path
from lgbench.lock import Lock
path, log = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(20):
    with Lock.waited_for(path):
        with log.open("a") as file:
            file.write("begin\\n")
        time.sleep(0.001)
        with log.open("a") as file:
            file.write("end\\n")
"""


@pytest.mark.slow
def test_processes_that_want_one_lock_have_it_one_after_the_other(path, tmp_path):
    with ExitStack() as stack:
        for process in [stack.enter_context(started(TAKES_TURNS, path, tmp_path / "log")) for _ in range(3)]:
            assert process.communicate() == ("", "") and process.returncode == 0
    assert (tmp_path / "log").read_text() == "begin\nend\n" * 60
