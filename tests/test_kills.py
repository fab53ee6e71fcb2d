"""A hundred kills at random moments, over all executors and all commands that write: nothing is lost, nothing made twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from helpers.commands import GRID, left, lgbench, rows

from lgbench.results import run_files


class Command(Protocol):
    """A running command: a `subprocess.Popen`, or a `warm.Process`."""

    pid: int
    returncode: int | None

    def __enter__(self) -> Command: ...
    def __exit__(self, *error: object) -> None: ...
    def poll(self) -> int | None: ...
    def communicate(self) -> tuple[str, str]: ...


class Files:
    """The run files of a folder. Once there, a file stays as it is."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}

    def look(self, folder: Path) -> None:
        for path, written in self._seen.items():
            assert _version(path) == written, f"{path} was lost, or made a second time"
        self._seen |= {path: _version(path) for path in run_files.find(folder)}


def _version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_ino, about.st_mtime_ns


def kill_at_random(
    start: Callable[[Path], Command],
    check: Callable[[Path, str], None],
    folder: Path,
    kills: int,
    longest: float,
    others: Callable[[Command, Path], list[int]] = lambda command, folder: [],
) -> None:
    """Kill a command `kills` times, each after at most `longest` seconds, and start it again until it ends by itself.

    Then `check` gets its folder and its output, and the next one begins in a new folder. `others` gives the other processes
    that may be killed instead, after which the command may fail.
    """
    draw, files, ended = random.Random(kills), Files(), 0
    done = False
    while kills or not done:
        now, killed_others, done = folder / str(ended), False, False
        with start(now) as command:
            while _runs(command, draw.uniform(0, longest) if kills else 600):
                assert kills, "it does not come to its end"
                victim = draw.choice([command.pid, *others(command, now)])
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    kills -= 1
                killed_others |= victim != command.pid
                if victim == command.pid:
                    break
            else:
                out, error = command.communicate()
                assert command.returncode == 0 or killed_others, error
                if command.returncode == 0:
                    check(now, out)
                    ended, done = ended + 1, True
        files.look(folder)


def _runs(command: Command, seconds: float) -> bool:
    """Wait so long. Whether the command has not ended until then."""
    ends = time.monotonic() + seconds
    while command.poll() is None and time.monotonic() < ends:
        time.sleep(0.005)
    return command.poll() is None


@pytest.fixture
def grid(tmp_path, toys_alone) -> Callable[[Path, str], None]:
    """A check: a folder holds what an undisturbed command makes, to the bit, and nothing else."""
    lgbench(*GRID, "--seeds", "0:3", "--results", tmp_path / "whole")
    expected = rows(tmp_path / "whole")
    assert len(expected) == 6

    def check(folder: Path, said: str) -> None:
        assert rows(folder) == expected
        assert [path for path in left(folder) if not path.startswith(".slurm")] == []  # logs of the jobs of a killed command

    return check


@pytest.mark.long
def test_thirty_kills_of_a_run_in_one_process(tmp_path, warm, environ, grid):
    words = [*GRID, "--seeds", "0:3", "--checkpoint", "0", "--workers", "1", "--results"]
    kill_at_random(
        lambda folder: warm.start([*words, folder], TOYS_SLEEP="0.02", **environ), grid, tmp_path / "killed", 30, 2.0
    )


@pytest.mark.long
def test_ten_kills_of_a_run_in_two_workers_and_of_its_workers(tmp_path, warm, environ, grid):
    words = [*GRID, "--seeds", "0:3", "--checkpoint", "0", "--workers", "2", "--population", "2", "--results"]

    def start(folder: Path) -> Command:
        return warm.start([*words, folder], TOYS_SLEEP="0.02", **environ)

    def workers(command: Command, folder: Path) -> list[int]:
        return [child.pid for child in psutil.Process(command.pid).children()]

    kill_at_random(start, grid, tmp_path / "killed", 10, 12.0, workers)
