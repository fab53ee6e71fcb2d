"""Worker processes: the run files of one process to the bit, whoever is killed or interrupted."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from conftest import CPU
from test_executor import made

from lgbench.execution import messages
from lgbench.execution.device import Execution
from lgbench.execution.executor import InProcess
from lgbench.execution.json_lines import received, send
from lgbench.execution.progress import UNCOMPILED, Phase, SilentProgress, TimeLeft
from lgbench.execution.runner import run_plan
from lgbench.execution.work_queue import UNFINISHED
from lgbench.execution.workers import Workers, executor_for
from lgbench.experiment.plan import Plan, Request, plan

SETTINGS = {
    "train.steps": "6",
    "train.batch": "4",
    "evaluate.contexts": "4",
    "evaluate.strings": "8",
    "evaluate.max_length": "48",
}


def planned(registry, steps: str = "6") -> Plan:
    asked = Request(["tomita-1", "tomita-2"], ["pre-norm"], ["ema"], (0, 1), "quick", SETTINGS | {"train.steps": steps})
    return plan(asked, registry)


class Told(SilentProgress):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


@pytest.fixture(scope="module")
def alone(registry, tmp_path_factory) -> dict[str, str]:
    """The run files that one process makes."""
    folder = tmp_path_factory.mktemp("alone")
    outcome = run_plan(planned(registry), Execution(CPU, False, 1), folder, SilentProgress())
    assert len(outcome.written) == 4
    return made(folder)


def test_messages_survive_the_way_to_a_worker_and_back(registry):
    records = [experiment.record for experiment in planned(registry).experiments]
    order = messages.Train(records, "/a folder/é", 3, True)
    stream = io.StringIO()
    send(stream, order)
    again = messages.to_worker(stream.getvalue())
    assert isinstance(again, messages.Train)
    assert again == order and [record.run_id for record in again.records] == [record.run_id for record in records]


@pytest.mark.slow
def test_two_workers_make_the_run_files_of_one_process_to_the_bit(registry, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(sorted({plugin.name for plugin in registry.plugins})))
    execution = Execution(CPU, False, 1, workers=2)
    outcome = run_plan(
        planned(registry), execution, tmp_path, SilentProgress(), Workers(execution, tmp_path, (), SilentProgress())
    )
    assert len(outcome.written) == 4 and not outcome.failed
    assert made(tmp_path) == alone
    assert not (tmp_path / UNFINISHED).exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_steps_alone(registry, alone, tmp_path, monkeypatch):
    """Its population is trained again, and as half as many models where it had several."""
    monkeypatch.setenv("LGBENCH_PLUGINS", ",".join(sorted({plugin.name for plugin in registry.plugins})))
    execution = Execution(CPU, False, 2, workers=2)
    display = Told()
    workers = Workers(execution, tmp_path, (), display)
    killed: list[int] = []

    give = workers._give

    def give_and_kill(work) -> None:
        give(work)
        if not killed:
            process = workers._workers[0].process
            killed.append(process.pid)
            process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(workers, "_give", give_and_kill)
    outcome = run_plan(planned(registry), execution, tmp_path, display, workers)
    assert killed and len(outcome.written) == 4 and not outcome.failed
    assert any("trained again, at most 1 at once" in sentence for sentence in display.said)
    assert made(tmp_path).keys() == alone.keys() and not (tmp_path / UNFINISHED).exists()


@pytest.mark.slow
def test_a_worker_that_cannot_start_fails_its_runs_with_a_sentence(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("LGBENCH_PLUGINS", "gone")
    execution = Execution(CPU, False, 2, workers=2)
    outcome = run_plan(
        planned(registry), execution, tmp_path, SilentProgress(), Workers(execution, tmp_path, (), SilentProgress())
    )
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


def wait_until(condition, seconds: float = 120) -> None:
    """A bound for a machine that hangs, not a measure of time."""
    latest = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < latest
        time.sleep(0.05)


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


def rows_of(files: dict[str, str]) -> dict[str, str]:
    """Without the footers, which say that training was continued."""
    return {name: content.partition("}], {")[0] for name, content in files.items()}


def test_a_single_run_needs_no_worker_process(registry, tmp_path):
    one = Plan(planned(registry).experiments[:1], ())
    assert isinstance(executor_for(one, Execution(CPU, workers=8), tmp_path, (), SilentProgress()), InProcess)
    assert isinstance(executor_for(planned(registry), Execution(CPU, workers=2), tmp_path, (), SilentProgress()), Workers)


def test_the_time_left_is_what_the_pace_so_far_makes_of_all_that_is_left(registry, monkeypatch):
    """Two workers, each with a population of one of four runs; a clock that runs by hand."""
    now = 0.0
    monkeypatch.setattr("lgbench.execution.progress.time.monotonic", lambda: now)
    experiments = planned(registry, "100").experiments
    left = TimeLeft.of(experiments, 2)
    assert left.remaining() is None
    first, second = (Phase.train("", [experiment]) for experiment in experiments[:2])
    with left.phase(first) as report, left.phase(second) as other:
        report(1), other(1)
        assert left.remaining() is None  # the first step says nothing: a program may have been compiled in it
        now = 10.0
        report(26), other(26)
        pace = 10 / (25 / 100 * first.tokens)  # seconds of one worker for a token
        training = 4 * first.tokens - 2 * 26 / 100 * first.tokens
        testing = sum(Phase.evaluate("", [experiment]).tokens for experiment in experiments)
        assert left.remaining() == pytest.approx((training + UNCOMPILED * testing) * pace / 2)
        now = 1010.0
        report(27)  # it was compiled for another length
        assert left.remaining() == pytest.approx((training - first.tokens / 100 + UNCOMPILED * testing) * pace / 2)
    again = TimeLeft.of(experiments, 1)
    with again.phase(first) as report:
        report(1)
        now = 1025.0
        report(2)  # it was compiled, too
        now = 1025.4
        report(3)
        pace_now = 0.4 / (first.tokens / 100)
        assert again.remaining() == pytest.approx((3.97 * first.tokens + UNCOMPILED * testing) * pace_now)
        now = 1025.401
        report(99)  # a worker told this long ago, and nobody had time to listen
        assert again.remaining() == pytest.approx((3.01 * first.tokens + UNCOMPILED * testing) * pace_now)
    longer = planned(registry, "700").experiments  # seven times the training, the same tests, at the same pace
    assert left.of_others(longer) == pytest.approx((7 * 4 * first.tokens + UNCOMPILED * testing) * pace / 2)


@pytest.mark.parametrize("cut", [b'{"type":', b'{"type":"Say","sentence":"\xc3'], ids=["a line", "a character"])
def test_the_last_words_of_a_process_that_was_killed_are_no_message(cut):
    """Without an end of the messages, whoever waits for them would wait for ever."""
    whole = msgspec.json.encode(messages.Say("so far"))
    with io.TextIOWrapper(io.BytesIO(whole + b"\n" + cut), encoding="utf-8") as stream:
        assert [*received(stream, messages.from_worker)] == [messages.Say("so far")]
