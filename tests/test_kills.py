"""Kills at random moments of a command and of its workers: nothing is lost, and nothing is made twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen

import psutil
import pytest
from helpers.commands import GRID, left, lgbench, rows, versions
from helpers.warm import COMMAND, Process, Warm

Running = Process | Popen[str]
WORDS = [*GRID, "--seeds", "0:3", "--checkpoint", "0", "--results"]


@pytest.fixture
def expected(tmp_path, toys_alone) -> dict[str, str]:
    """What an undisturbed command makes."""
    lgbench(*WORDS, tmp_path / "whole")
    return rows(tmp_path / "whole")


def kill_at_random(
    start: Callable[[Path], Running],
    expected: dict[str, str],
    folder: Path,
    kills: int,
    longest: float,
    others: Callable[[Running], list[int]] = lambda command: [],
) -> None:
    """Kill a command `kills` times, each after at most `longest` seconds, and start it again until it ends by itself.

    Then its folder has what is expected and nothing else, and the next command begins in a new folder. `others` gives other
    processes that may be killed instead, after which the command may fail.
    """
    draw, ended, done, files = random.Random(kills), 0, False, versions(folder)
    while kills or not done:
        now, killed_others, done = folder / str(ended), False, False
        with start(now) as command:
            while _runs(command, draw.uniform(0, longest) if kills else 600):
                assert kills, "it does not come to its end"
                victim = draw.choice([command.pid, *others(command)])
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    kills -= 1
                killed_others |= victim != command.pid
                if victim == command.pid:
                    break
            else:
                _, error = command.communicate()
                assert command.returncode == 0 or killed_others, error
                if command.returncode == 0:
                    assert rows(now) == expected and len(expected) == 6 and left(now) == []
                    ended, done = ended + 1, True
        before, files = files, versions(folder)
        assert files.items() >= before.items(), "a run file was lost, or made a second time"


def _runs(command: Running, seconds: float) -> bool:
    """Wait so long. Whether the command has not ended until then."""
    ends = time.monotonic() + seconds
    while command.poll() is None and time.monotonic() < ends:
        time.sleep(0.005)
    return command.poll() is None


@pytest.mark.long
def test_thirty_kills_of_a_run_in_one_process(tmp_path, warm: Warm, environ, expected):
    def start(folder: Path) -> Process:
        return warm.start([*WORDS, folder, "--workers", "1"], TOYS_SLEEP="0.02", **environ)

    kill_at_random(start, expected, tmp_path / "killed", 30, 2.0)


@pytest.mark.long
def test_ten_kills_of_a_run_in_two_workers_and_of_its_workers(tmp_path, environ, expected):
    """In an interpreter of its own: a process of `warm` trains without workers."""

    def start(folder: Path) -> Running:
        words = [*WORDS, folder, "--workers", "2", "--population", "2"]
        variables = os.environ | environ | {"TOYS_SLEEP": "0.02"}
        return Popen([sys.executable, "-c", COMMAND, *map(str, words)], stdout=PIPE, stderr=PIPE, text=True, env=variables)

    def workers(command: Running) -> list[int]:
        return [child.pid for child in psutil.Process(command.pid).children()]

    kill_at_random(start, expected, tmp_path / "killed", 10, 12.0, workers)
