"""Messages from a command to its trackers, which run in a process of their own.

So a tracker cannot change the state that trainings share, it cannot stop a training, and no training waits for it.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

import msgspec

import lgbench
from lgbench.contracts import SOUNDNESS, RunEnd, TrackedRun
from lgbench.contracts.trackers import Setting
from lgbench.errors import RunFileError
from lgbench.execution import tracking_messages as messages
from lgbench.execution.executor import Done, located
from lgbench.execution.following import Reached, Values, finite, name_of
from lgbench.execution.json_lines import received, send
from lgbench.execution.lease import LeaseLost
from lgbench.execution.scheduler import Work
from lgbench.execution.tracking_messages import HANDLES, Handles
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord
from lgbench.results import run_files

PATIENCE_SECONDS = 60.0
"""Trackers have so long to keep what they were told, once all runs have ended: some send it over a network."""
QUIET_SECONDS = 3.0
"""After so long the user reads why the command has not ended."""
BOOT = """
import signal
for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):  # the command gets them too, and this process ends when that does
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
from lgbench.execution.tracking_process import main
main()
"""


class Tracking:
    """The trackers of one command. A context manager: its end ends the runs that are open."""

    def __init__(self, trackers: Sequence[str], plugins: Sequence[Path], say: Callable[[str], None]) -> None:
        """`plugins` are plugin files. Where there are no trackers, nothing is done. `say` is called from a thread, too."""
        self.trackers, self._plugins, self._say = tuple(trackers), plugins, say
        self._process: subprocess.Popen[str] | None = None
        self._orders: queue.Queue[messages.Order | None] = queue.Queue()
        self._threads: list[threading.Thread] = []
        self._open: set[str] = set()
        """Ids of runs."""

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        why = "interrupted" if kind and issubclass(kind, KeyboardInterrupt) else "the command has ended"
        for run in self._open:
            self._orders.put(messages.End(run, RunEnd("stopped", why)))
        self._open.clear()
        self._close()

    def begin(self, work: Work) -> None:
        """A population is trained now."""
        if not self.trackers:
            return
        self._process = self._process or self._started()
        folder = work.claim.folder
        runs = {experiment.run_id: tracked(experiment.record) for experiment in work.claim.experiments}
        self._open |= runs.keys()
        self._orders.put(messages.Begin(runs, str(folder.resolve()), _handles(folder)))

    def reached(self, population: Sequence[Experiment], reached: Reached) -> None:
        """A population that was begun has reached a step."""
        if not self.trackers:
            return
        for experiment, values in zip(population, reached.values, strict=True):
            if values:
                self._orders.put(messages.Log(experiment.run_id, reached.kind, reached.step, values))

    def end(self, done: Done) -> None:
        """A population has ended: its runs have files, or why they have none."""
        if not self.trackers:
            return
        written = {path.name: path for path in done.written}
        for experiment in done.work.claim.experiments:
            run, path = experiment.run_id, written.get(run_files.name_for(experiment.record))
            if run not in self._open:
                continue
            self._open.discard(run)
            end = _end_without_file(done.error)
            if path:
                with suppress(RunFileError):  # somebody has removed it
                    step, values, end = _final(path)
                    self._orders.put(messages.Log(run, "final", step, values))
            self._orders.put(messages.End(run, end))

    def _started(self) -> subprocess.Popen[str]:
        pipe, command = subprocess.PIPE, [sys.executable, "-c", BOOT]
        quiet = None if os.environ.get("LGBENCH_TRACE", "0") not in ("", "0") else subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, encoding="utf-8")
        self._orders.put(messages.Setup(list(self.trackers), [str(path.resolve()) for path in self._plugins]))
        for name, target in (("orders to", self._send), ("answers of", self._listen)):
            thread = threading.Thread(target=target, args=(process,), name=f"{name} trackers", daemon=True)
            self._threads.append(thread)
            thread.start()
        return process

    def _send(self, process: subprocess.Popen[str]) -> None:
        """A thread: the process may be slow, or stand still."""
        assert process.stdin
        with suppress(OSError):  # it is dead, and its output says so by ending
            while (order := self._orders.get()) is not None:
                send(process.stdin, order)
        with suppress(OSError):
            process.stdin.close()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        with process.stdout as lines:
            for message in received(lines, messages.said):
                self._say(message.sentence)
        if process.wait():
            self._say(f"the process that tells {self._named} of runs has died; training goes on")

    def _close(self) -> None:
        """Wait until trackers have kept all that they were told, but not for ever."""
        if self._process is None:
            return
        self._orders.put(None)
        try:
            for thread in self._threads:
                thread.join(QUIET_SECONDS)
            if any(thread.is_alive() for thread in self._threads):
                self._say(f"waiting for {self._named} to keep what they were told, {PATIENCE_SECONDS:.0f} s at most")
                self._threads[-1].join(PATIENCE_SECONDS)
            if self._threads[-1].is_alive():
                self._say(f"{self._named} did not end in time, and may lack the last numbers; the run files have them")
        finally:
            self._kill(self._process)
            self._process = None

    def _kill(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            self._say = lambda sentence: None  # nobody needs to hear that it died
            process.kill()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    @property
    def _named(self) -> str:
        *others, last = self.trackers
        return f"{', '.join(others)} and {last}" if others else last


class Begun:
    """The populations of a scheduler, each of which trackers hear of when it is taken. It can be asked again."""

    def __init__(self, left: Iterable[Work | None], tracking: Tracking) -> None:
        self._left, self._tracking = left, tracking

    def __iter__(self) -> Iterator[Work | None]:
        for work in self._left:
            if work:
                self._tracking.begin(work)
            yield work


def tracked(record: ExperimentRecord) -> TrackedRun:
    """A run, as trackers get to know it."""
    tags = {
        "task": record.task,
        "family": record.family,
        "entry": record.entry,
        "seed": str(record.seed),
        "protocol": str(record.protocol),
        "run_id": record.run_id,
    }
    return TrackedRun(run_files.run_name(record), tags, _config(record))


def _config(record: ExperimentRecord) -> dict[str, Setting]:
    """Every field under one name, such as train.steps and model.layers."""
    found: dict[str, Setting] = {"lgbench": lgbench.__version__}
    for name, value in asdict(record).items():
        if name in ("train", "evaluate"):
            found |= {f"{name}.{key}": _plain(item) for key, item in value.items()}
        elif name == "options":
            found |= {key: _plain(item) for key, item in value}
        elif name == "plugins":
            found[name] = ", ".join(f"{plugin['name']} {plugin['version']}" for plugin in value)
        elif name != "tuning":
            found[name] = str(record.protocol) if name == "protocol" else _plain(value)
    return found | {"tuned": record.tuning is not None}


def _plain(value: object) -> Setting:
    if value is None or isinstance(value, str | int | float):
        return value
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _handles(folder: Path) -> Handles:
    """The handles that an earlier process kept of a population. A file that is none of ours counts as no file."""
    try:
        return msgspec.json.decode((folder / HANDLES).read_bytes(), type=Handles)
    except (OSError, msgspec.MsgspecError):
        return {}


def _end_without_file(error: Exception | None) -> RunEnd:
    if error is None:
        return RunEnd("stopped", "another process has made the run")
    return RunEnd("stopped" if isinstance(error, LeaseLost) else "failed", located(error))


def _final(path: Path) -> tuple[int, Values, RunEnd]:
    """The last step of a run, what was measured of the trained model, and how it ended."""
    rows = [row for row in run_files.read(path).to_pylist() if row["weights"] != "chance" and row["layer"] is None]
    step = max(row["step"] for row in rows)
    scores = (row for row in rows if row["step"] == step and row["length"] is not None and row["metric"] not in SOUNDNESS)
    values = finite((name_of(row["metric"], row["weights"], row["length"]), row["value"]) for row in scores)
    return step, values, RunEnd("finished", diverged_step=rows[0]["diverged_step"])
