"""Worker processes: the run files of one process to the bit, whoever is killed or interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from helpers.in_process import run_here
from helpers.made_runs import made, rows_of, wait_until
from helpers.plain_training import CPU
from helpers.planning import plan_of

from lgbench import Pool
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import PlanOutcome, Scheduler
from lgbench.execution.work_queue import UNFINISHED
from lgbench.execution.workers import Setup, Workers
from lgbench.experiment.plan import Plan

SETTINGS = {
    "train.steps": "6",
    "train.batch": "4",
    "evaluate.contexts": "4",
    "evaluate.strings": "8",
    "evaluate.max_length": "48",
}


def planned(registry, steps: str = "6") -> Plan:
    settings = SETTINGS | {"train.steps": steps}
    return plan_of(registry, ["tomita-1", "tomita-2"], "pre-norm", average="ema", seeds=(0, 1), set=settings)


class Told(ProgressDisplay):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


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
    execution = Execution(CPU, False, 1, workers=2)
    outcome = in_workers(planned(registry), execution, tmp_path)
    assert len(outcome.written) == 4 and not outcome.failed
    assert made(tmp_path) == alone
    assert not (tmp_path / UNFINISHED).exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_steps_alone(registry, alone, tmp_path, monkeypatch):
    """Its population is trained again, and as half as many models where it had several."""
    monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(sorted({plugin.name for plugin in registry.plugins})))
    execution = Execution(CPU, False, 2, workers=2)
    display, killed = Told(), []

    def kill_once(worker) -> None:
        if not killed:
            killed.append(worker)
            worker.process.send_signal(signal.SIGKILL)

    outcome = in_workers(planned(registry), execution, tmp_path, kill_once, display)
    assert killed and len(outcome.written) == 4 and not outcome.failed
    assert any("trained again, at most 1 at once" in sentence for sentence in display.said)
    assert made(tmp_path).keys() == alone.keys() and not (tmp_path / UNFINISHED).exists()


@pytest.mark.slow
def test_a_worker_that_cannot_start_fails_its_runs_with_a_sentence(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "gone")
    execution = Execution(CPU, False, 2, workers=2)
    outcome = in_workers(planned(registry), execution, tmp_path)
    assert not outcome.written and len(outcome.failed) == 2
    for failure in outcome.failed:
        assert "failed: a worker process cannot start: LGBENCH_PLUGINS: no plugin 'gone'; known: " in str(failure)


OPTIONS = "--task tomita-1,tomita-2 --arch pre-norm --average ema --seeds 0,1 --protocol quick --no-compile --population 1"
COMMAND = [
    *(sys.executable, "-c", "from lgbench.cli.main import main; main()", "run"),
    *OPTIONS.split(),
    *("--workers", "2", "--checkpoint", "0.2"),
]


def command(folder: Path, steps: int) -> list[str]:
    settings = SETTINGS | {"train.steps": str(steps)}
    return [
        *COMMAND,
        "--results",
        str(folder),
        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
    ]


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_command_that_is_stopped_takes_its_workers_with_it_and_goes_on_to_the_same_numbers(tmp_path, how):
    environ = os.environ | {"LGBENCH_PLUGINS": ""}
    environ.pop("LGBENCH_PLUGINS")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run(command(whole, 120), check=True, capture_output=True, env=environ)
    process = subprocess.Popen(command(parts, 120), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    wait_until(lambda: len(list(parts.glob(f"{UNFINISHED}/*/checkpoint.safetensors"))) == 2)
    children = workers_of(process)
    assert len(children) == 2
    process.send_signal(how)
    process.communicate()
    assert process.returncode == (130 if how is signal.SIGINT else -how)
    wait_until(lambda: not any(map(alive, children)))
    again = subprocess.run(command(parts, 120), check=True, capture_output=True, text=True, env=environ)
    assert "training goes on after step" in again.stderr
    assert rows_of(made(parts)) == rows_of(made(whole)) and not (parts / UNFINISHED).exists()
