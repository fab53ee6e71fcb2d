"""The process of a command that tells trackers of its runs. It ends when its input does, and closes the runs that are open.

Whatever a tracker does, it does here: where it fails, its runs go without it, and trainings go on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec

from lgbench.atomic_files import replaced
from lgbench.contracts import OpenRun, RunEnd, TrackedRun, Tracker
from lgbench.errors import LgbenchError, first_line
from lgbench.execution import lease
from lgbench.execution import tracking_messages as messages
from lgbench.execution.json_lines import received, send
from lgbench.execution.tracking_messages import HANDLES, Handles, Kept
from lgbench.extensions.registry import Registry
from lgbench.extensions.tracking import usable


class _Open:
    """A run that a tracker has begun."""

    def __init__(self, name: str, run: OpenRun, kept: Kept, folder: Path) -> None:
        self.name, self.run, self.kept, self.folder = name, run, kept, folder

    def log(self, kind: str, step: int, values: dict[str, float]) -> None:
        """A training that goes on tells again what went before; the tracker is not told twice."""
        if step > self.kept.steps.get(kind, 0):
            self.run.log(step, values)
            self.kept.steps[kind] = step


class Trackers:
    """The trackers of a command. Each fails by itself, and is told of nothing more after it has failed."""

    def __init__(self, output: TextIO, trackers: dict[str, Tracker]) -> None:
        self._output, self._trackers = output, trackers
        self._open: dict[str, dict[str, _Open]] = {name: {} for name in trackers}

    def begin(self, order: messages.Begin) -> None:
        """Start or resume each run that is not open already, as it is where a population is tried again."""
        folder = Path(order.folder)
        for name, runs in self._open.items():
            for run_id, run in order.runs.items():
                if run_id in runs:
                    runs[run_id].folder = folder
                elif name in self._trackers:
                    with self._told(name):
                        runs[run_id] = self._started(name, run, order.before.get(name, {}).get(run_id), folder)
        self._keep(folder)

    def log(self, order: messages.Log) -> None:
        for name, runs in self._open.items():
            if found := runs.get(order.run):
                with self._told(name):
                    found.log(order.kind, order.step, order.values)
                self._keep(found.folder)

    def end(self, order: messages.End) -> None:
        for name, runs in self._open.items():
            if found := runs.pop(order.run, None):
                with self._told(name):
                    found.run.end(order.end)

    def close(self) -> None:
        """The command is gone: end what is open."""
        for run in {run for runs in self._open.values() for run in runs}:
            self.end(messages.End(run, RunEnd("stopped", "the command has ended")))

    def say(self, sentence: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more
            send(self._output, messages.Say(sentence))

    def _started(self, name: str, run: TrackedRun, kept: Kept | None, folder: Path) -> _Open:
        tracker = self._trackers[name]
        if kept:
            if again := tracker.resume(run, kept.handle):
                return _Open(name, again, Kept(again.handle, kept.steps), folder)
            self.say(f"{name} cannot go on with the run that it had for {run.name}, so a new one begins")
        new = tracker.start(run)
        return _Open(name, new, Kept(new.handle), folder)

    def _keep(self, folder: Path) -> None:
        """Keep the handles of a population beside its checkpoint, if that is still there."""
        found: Handles = {
            name: {run_id: own.kept for run_id, own in runs.items() if own.folder == folder}
            for name, runs in self._open.items()
        }
        parked = folder.with_name(lease.name_of(folder))  # its name after an interrupt
        with contextlib.suppress(OSError), replaced((folder if folder.exists() else parked) / HANDLES) as partial:
            partial.write_bytes(msgspec.json.encode(found))

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """After an error the tracker is not asked again, and its runs are left as they are."""
        try:
            yield
        except (Exception, SystemExit) as error:  # a plugin's code may raise anything
            self._trackers.pop(name, None)
            self._open[name].clear()
            self.say(f"{name} follows the runs no longer: {_reason(error)}; training goes on")


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, LgbenchError) else f"{type(error).__name__}: {first_line(error)}"


def main() -> None:
    """Read orders from standard input. Whatever plugins and trackers print is on standard error, which nobody reads."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    setup = messages.order(sys.stdin.readline())
    assert isinstance(setup, messages.Setup)
    try:
        registry = Registry.load(files=map(Path, setup.plugins))
        found = {name: registry.trackers[name] for name in usable(setup.trackers, registry)}
    except LgbenchError as error:  # a plugin has changed since the command began
        send(output, messages.Say(f"nobody follows the runs: {error}; training goes on"))
        return
    trackers = Trackers(output, found)
    for message in received(sys.stdin, messages.order):
        match message:
            case messages.Begin() as begin:
                trackers.begin(begin)
            case messages.Log() as log:
                trackers.log(log)
            case messages.End() as end:
                trackers.end(end)
    trackers.close()
