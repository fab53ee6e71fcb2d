"""Worker processes: the run files of one process to the bit, whoever is killed or interrupted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from helpers.commands import GRID, changing, left, lgbench, rows, versions
from helpers.in_process import run_here
from helpers.made_runs import made, rows_of, wait_until
from helpers.plain_training import CHEAP, CPU
from helpers.planning import plan_of
from helpers.processes import COMMAND

from lgbench import Pool
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import PlanOutcome, Scheduler
from lgbench.execution.work_queue import UNFINISHED, PlannedPopulation
from lgbench.execution.workers import Job, Setup, Workers, trained_alone
from lgbench.experiment.plan import Plan


def planned(registry) -> Plan:
    return plan_of(registry, ["tomita-1", "tomita-2"], "pre-norm", average="ema", seeds=(0, 1), set=CHEAP)


@pytest.fixture(scope="module")
def alone(registry, tmp_path_factory) -> dict[str, str]:
    """The run files that one process makes."""
    folder = tmp_path_factory.mktemp("alone")
    outcome = run_here(planned(registry), Execution(CPU, False, 1), folder, loaded=registry.loaded())
    assert len(outcome.written) == 4
    return made(folder)


def in_workers(
    plan: Plan, execution: Execution, folder: Path, began=lambda worker: None, display: ProgressDisplay | None = None
) -> PlanOutcome:
    """Outcome of a plan in worker processes; `began` gets the worker of each population."""
    display = display or ProgressDisplay()
    with closing(Workers(execution.workers, display)) as workers:

        def submit(job):
            began(worker := workers.submit(job))
            return worker

        return Scheduler(plan.experiments, Setup(folder, execution), display).run(Pool(submit, execution.workers))


@pytest.mark.slow
def test_two_workers_make_the_run_files_of_one_process_to_the_bit(registry, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(sorted({plugin.name for plugin in registry.plugins})))
    (tmp_path / "select.py").write_text("1 / 0  # in the current folder, where workers must not look for modules")
    monkeypatch.chdir(tmp_path)
    execution, results = Execution(CPU, False, 1, workers=2), tmp_path / "results"
    outcome = in_workers(planned(registry), execution, results)
    assert len(outcome.written) == 4 and not outcome.failed
    assert made(results) == alone
    assert not (results / UNFINISHED).exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_steps_alone(registry, alone, tmp_path, monkeypatch):
    """Its population is trained again, and as half as many models where it had several."""
    monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(sorted({plugin.name for plugin in registry.plugins})))
    execution = Execution(CPU, False, 2, workers=2)
    display, killed = ProgressDisplay(), []
    display.say = (said := []).append

    def kill_once(worker) -> None:
        if not killed:
            killed.append(worker)
            worker.process.send_signal(signal.SIGKILL)

    outcome = in_workers(planned(registry), execution, tmp_path, kill_once, display)
    assert killed and len(outcome.written) == 4 and not outcome.failed
    assert any("trained again, at most 1 at once" in sentence for sentence in said)
    assert made(tmp_path).keys() == alone.keys() and not (tmp_path / UNFINISHED).exists()


@pytest.mark.slow
def test_a_worker_that_crashes_is_no_lack_of_memory(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(sorted({plugin.name for plugin in registry.plugins})))
    crash = lambda worker: worker.process.send_signal(signal.SIGSEGV)  # noqa: E731
    outcome = in_workers(planned(registry), Execution(CPU, False, 2, workers=2), tmp_path, crash)
    assert len(outcome.failed) == 2 and all("the worker process ended with SIGSEGV" in str(each) for each in outcome.failed)


class Unreadable(os.PathLike):
    """Folder that no other process can read."""

    def __fspath__(self) -> str:
        return "nowhere"

    def __reduce__(self):
        return int, ("no number",)


@pytest.mark.slow
def test_a_job_that_a_worker_cannot_read_ends_with_a_sentence(registry, tmp_path):
    job = Job(
        Setup(tmp_path, Execution(CPU, False, 1)),
        PlannedPopulation.of(planned(registry).experiments[:1], 1, False),
        Unreadable(),
    )
    outcome = trained_alone(job, ProgressDisplay())
    assert "the worker process ended with exit code 0; it had loaded the plugins" in str(outcome.error)


@pytest.mark.slow
def test_a_worker_that_cannot_start_fails_its_runs_with_a_sentence(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "gone")
    execution = Execution(CPU, False, 2, workers=2)
    outcome = in_workers(planned(registry), execution, tmp_path)
    assert not outcome.written and len(outcome.failed) == 2
    for failure in outcome.failed:
        assert "failed: a worker process cannot start: LGBENCH_PLUGINS: no plugin 'gone'; known: " in str(failure)


OPTIONS = "--task tomita-1,tomita-2 --arch pre-norm --average ema --seeds 0,1 --protocol quick --no-compile --population 1"
RUN = [sys.executable, "-c", COMMAND, "run", *OPTIONS.split(), "--workers", "2", "--checkpoint", "0.2"]


def command(folder: Path, steps: int) -> list[str]:
    return [*RUN, "--results", str(folder), *changing(CHEAP | {"train.steps": steps})]


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def alive(worker: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return worker.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_command_that_is_stopped_takes_its_workers_with_it_and_goes_on_to_the_same_numbers(tmp_path, how):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run(command(whole, 120), check=True, capture_output=True)
    process = subprocess.Popen(command(parts, 120), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(list(parts.glob(f"{UNFINISHED}/*/checkpoint.safetensors"))) == 2)
    children = workers_of(process)
    assert len(children) == 2
    process.send_signal(how)
    process.communicate()
    assert process.returncode == (130 if how is signal.SIGINT else -how)
    wait_until(lambda: not any(map(alive, children)))
    again = subprocess.run(command(parts, 120), check=True, capture_output=True, text=True)
    assert "training goes on after step" in again.stderr
    assert rows_of(made(parts)) == rows_of(made(whole)) and not (parts / UNFINISHED).exists()


def still_runs(command: subprocess.Popen[str], seconds: float) -> bool:
    """Wait so long. Whether the command has not ended until then."""
    with suppress(subprocess.TimeoutExpired):
        command.wait(seconds)
    return command.returncode is None


@pytest.mark.long
def test_ten_kills_of_a_run_and_of_its_workers_lose_nothing_and_nothing_is_made_twice(tmp_path, toys_alone):
    """Each after at most 12 seconds. A killed command is started again, and one that ended goes to a new folder.

    After the kill of a worker the command may fail.
    """
    words = [*GRID, "--seeds", "0:3", "--checkpoint", "0", "--results"]
    lgbench(*words, tmp_path / "whole")
    expected, folder = rows(tmp_path / "whole"), tmp_path / "killed"
    environ, pipes = os.environ | {"TOYS_SLEEP": "0.02"}, {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    kills, ended, done, files, draw = 10, 0, False, versions(folder), random.Random(10)
    while kills or not done:
        now, killed_a_worker, done = folder / str(ended), False, False
        started = [sys.executable, "-c", COMMAND, *words, str(now), "--workers", "2", "--population", "2"]
        with subprocess.Popen(started, text=True, env=environ, **pipes) as process:
            while still_runs(process, draw.uniform(0, 12) if kills else 600):
                assert kills, "it does not come to its end"
                victim = draw.choice([process.pid, *(worker.pid for worker in workers_of(process))])
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    kills -= 1
                killed_a_worker |= victim != process.pid
                if victim == process.pid:
                    break
            else:
                _, error = process.communicate()
                assert process.returncode == 0 or killed_a_worker, error
                if process.returncode == 0:
                    assert rows(now) == expected and len(expected) == 6 and left(now) == []
                    ended, done = ended + 1, True
        before, files = files, versions(folder)
        assert files.items() >= before.items(), "a run file was lost, or made a second time"
