"""Real processes through the command line: killed or frozen at any moment, at work side by side, and started once more."""

from __future__ import annotations

import os
import random
import signal
import time
from errno import ENOSPC
from shutil import rmtree

import pytest
from helpers.commands import SMALL, TWO_STACKS, finished, invoked, left, lgbench, rows, trained, until, versions, written
from helpers.made_runs import wait_until
from helpers.warm import dies

from lgbench import lock
from lgbench.execution.work_queue import CHECKPOINT, UNFINISHED
from lgbench.results import run_files

SLOW, LONG = pytest.mark.slow, pytest.mark.long


@pytest.mark.slow
def test_a_real_model_that_is_killed_ends_with_the_same_numbers(tmp_path, warm):
    """Killed so many seconds after it began a phase."""
    command = ["run", "--task", "tomita-4", "--arch", "peri-norm", "--average", "ema,bema", "--seeds", "0,1", "--no-compile"]
    settings = ("train.steps=150", "train.batch=4", "model.layers=1")
    command += ["--protocol", "quick", *(word for setting in settings for word in ("--set", setting)), "--checkpoint", "0"]
    lgbench(*command, "--results", tmp_path / "whole")
    draw, said = random.Random(11), []
    for phase, delay in (("train", draw.uniform(0, 1)), ("evaluate", draw.uniform(0, 0.2))):
        with warm.start([*command, "--results", tmp_path / "killed"]) as process:
            said += until(process, phase)
            time.sleep(delay)
    said.append(lgbench(*command, "--results", tmp_path / "killed"))
    assert "training goes on after step" in "".join(said)
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    assert len(rows(tmp_path / "whole")) == 2
    assert left(tmp_path / "killed") == []


@pytest.mark.parametrize(
    ("first", "step"), [pytest.param(20, 45, marks=SLOW), *(pytest.param(n, 8, marks=LONG) for n in range(8))]
)
def test_wherever_a_command_is_killed_the_same_one_ends_with_the_same_numbers(
    tmp_path, warm, environ, toys_alone, monkeypatch, first, step
):
    """At every change of the disk; in the slow tests at a few."""
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.5)  # a lock file that was just made does not say yet whose it is
    command = [*SMALL, "--task", "toy-even", "--seeds", "0:2", "--checkpoint", "0", "--set", "train.steps=4", "--results"]
    lgbench(*command, tmp_path / "whole")
    point = first
    while dies(warm, [*command, tmp_path / f"{point}"], point, **environ):
        lgbench(*command, tmp_path / f"{point}")
        assert rows(tmp_path / f"{point}") == rows(tmp_path / "whole"), point
        assert left(tmp_path / f"{point}") == [], point
        point += step
    assert point > 60


@pytest.mark.slow
def test_a_run_file_that_cannot_be_written_costs_no_training(tmp_path, toys_alone, monkeypatch):
    """As on a disk that is full for a while."""
    command = [*SMALL, "--task", "toy-even", "--seeds", "0:2", "--checkpoint", "0", "--results"]
    lgbench(*command, tmp_path / "whole")
    write = run_files.write

    def full(*arguments, **options):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(run_files, "write", full)
    failed = invoked(*command, tmp_path / "full")
    assert failed.exit_code == 1 and "No space left on device" in failed.output
    monkeypatch.setattr(run_files, "write", write)
    assert "training goes on after step 20" in lgbench(*command, tmp_path / "full")
    assert rows(tmp_path / "full") == rows(tmp_path / "whole") and left(tmp_path / "full") == []


def test_runs_that_another_process_writes_first_and_a_folder_that_it_removes_are_no_failure(tmp_path, toys_alone, monkeypatch):
    """As where a frozen process wakes while another ends."""
    command = [*SMALL, "--task", "toy-even", "--seeds", "0:2", "--results"]
    lgbench(*command, tmp_path / "alone")
    write = run_files.write

    def late(path, rows, metadata, scratch):
        write(path, rows, metadata)
        rmtree(scratch, ignore_errors=True)
        write(path, rows, metadata, scratch)

    monkeypatch.setattr(run_files, "write", late)
    lgbench(*command, tmp_path / "shared")
    assert rows(tmp_path / "shared") == rows(tmp_path / "alone") and left(tmp_path / "shared") == []


@pytest.mark.parametrize("content", [b"", b"PAR1 cut short"])
def test_a_damaged_run_file_is_told_and_kept_and_its_run_is_made_again(tmp_path, toys_alone, content):
    command = [*SMALL, "--task", "toy-even", "--seeds", "0:2", "--population", "1", "--results", tmp_path]
    lgbench(*command)
    before = rows(tmp_path)
    path = tmp_path / min(before)
    path.write_bytes(content)
    said = lgbench(*command)
    assert f"{path} was damaged, and is now {path.name}.damaged-1" in said and "1 run written" in said
    assert rows(tmp_path) == before and left(tmp_path) == [f"{path.name}.damaged-1"]
    assert (tmp_path / f"{path.name}.damaged-1").read_bytes() == content


@pytest.mark.slow
def test_two_processes_share_a_grid_and_nothing_is_done_twice(tmp_path, warm, environ, toys_alone):
    command = [*TWO_STACKS, "--seeds", "0,1", "--population", "1", "--results"]
    lgbench(*command, tmp_path / "alone")
    with (
        warm.start([*command, tmp_path / "shared"], TOYS_SLEEP="0.07", **environ) as one,
        warm.start([*command, tmp_path / "shared"], TOYS_SLEEP="0.07", **environ) as two,
    ):
        said = [finished(process) for process in (one, two)]
    assert sum(trained(error) for _, error in said) == 4
    assert sum(written(out) for out, _ in said) == 4
    assert rows(tmp_path / "shared") == rows(tmp_path / "alone") and len(rows(tmp_path / "alone")) == 4
    assert left(tmp_path / "shared") == []


@pytest.mark.slow
def test_a_process_takes_over_what_another_was_training_when_it_was_killed(tmp_path, warm, environ, toys_alone):
    """The first gets stuck in the average after its fifth step, its fourth being saved."""
    command = [*TWO_STACKS, "--set", "train.average_every=5", "--seeds", "0,1", "--checkpoint", "0", "--results"]
    lgbench(*command, tmp_path / "alone")
    with warm.start([*command, tmp_path / "shared"], TOYS_SLEEP="100", **environ) as slow:
        assert trained("".join(until(slow, "train"))) == 1
        with warm.start([*command, tmp_path / "shared"], **environ) as quick:
            said = "".join(until(quick, "waiting for 2 runs that other processes are making"))
            slow.kill()
            out, rest = finished(quick)
    assert trained(said) == trained(rest) == 1
    assert "training goes on after step 4" in rest and written(out) == 4
    assert rows(tmp_path / "shared") == rows(tmp_path / "alone")
    assert left(tmp_path / "shared") == []


STRANGER = """
import sys
from lgbench import lock
lock.BEAT_SECONDS, lock.STALE_SECONDS = 0.05, 1.0
lock.machine = lambda: f"{abs(hash(sys.argv[1])):08x}"[:8]
from lgbench.cli.main import main
main(sys.argv[2:], prog_name="lgbench")
"""
"""Command on another machine, which cannot ask this one whether a process lives. Locks become stale after a second."""


@pytest.mark.slow
def test_a_machine_takes_over_what_another_was_training_when_it_froze(tmp_path, warm, environ, toys_alone):
    """The frozen process wakes, finds all files written, and replaces none."""
    command = [*TWO_STACKS, "--set", "train.average_every=5", "--seeds", "0,1", "--checkpoint", "0", "--results"]
    lgbench(*command, tmp_path / "alone")
    folder = tmp_path / "folder"
    with warm.start(["machine-one", *command, folder], STRANGER, TOYS_SLEEP="0.3", **environ) as holder:
        assert trained("".join(until(holder, "train"))) == 1
        wait_until(lambda: list(folder.glob(f"{UNFINISHED}/*/{CHECKPOINT}")))
        os.kill(holder.pid, signal.SIGSTOP)
        with warm.start(["machine-two", *command, folder], STRANGER, **environ) as other:
            out, rest = finished(other)
        assert "training goes on after step" in rest and written(out) == 4
        before = versions(folder)
        os.kill(holder.pid, signal.SIGCONT)
        out, said = finished(holder)
        assert written(out) == 0 and "4 runs were done before" in out + said
        assert versions(folder) == before
    assert rows(folder) == rows(tmp_path / "alone") and len(rows(tmp_path / "alone")) == 4
    assert left(folder) == []


@pytest.mark.slow
def test_a_frozen_process_that_wakes_while_another_trains_harms_neither(tmp_path, warm, environ, toys_alone):
    """Both write checkpoints of one population to the end, and each run file is made once."""
    command = [*SMALL, "--task", "toy-even", "--set", "train.average_every=2", "--seeds", "0,1", "--checkpoint", "0"]
    command.append("--results")
    lgbench(*command, tmp_path / "alone")
    folder = tmp_path / "folder"
    with warm.start(["machine-one", *command, folder], STRANGER, TOYS_SLEEP="0.2", **environ) as holder:
        assert trained("".join(until(holder, "train"))) == 1
        wait_until(lambda: list(folder.glob(f"{UNFINISHED}/*/{CHECKPOINT}")))
        os.kill(holder.pid, signal.SIGSTOP)
        with warm.start(["machine-two", *command, folder], STRANGER, TOYS_SLEEP="0.2", **environ) as other:
            assert trained("".join(until(other, "train"))) == 1
            os.kill(holder.pid, signal.SIGCONT)
            said = [finished(process) for process in (holder, other)]
    assert rows(folder) == rows(tmp_path / "alone") and sum(written(out) for out, _ in said) >= 2
    assert len(rows(folder)) == 2 and left(folder) == []
