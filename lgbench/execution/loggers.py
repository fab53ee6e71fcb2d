"""Loggers of the trainings in this process. Each logger has a thread, so no training step waits for a logger.

Loggers get copies of numbers. A failed or hanging logger loses only its own records, and the user is told once.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from lgbench.atomic_files import replaced
from lgbench.checkout import VERSION
from lgbench.contracts import CONTEXT_FREE, CURVE_METRICS, PART_KINDS, SOUNDNESS, LoggedRun, Logger, OpenRun, RunEnd
from lgbench.contracts.training import Setting
from lgbench.errors import RunFileError, located, message_of
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import ExperimentRecord
from lgbench.experiment.settings import all_settings
from lgbench.measurement.scores import Score
from lgbench.results import run_files

PATIENCE_SECONDS = 60.0
"""Time for loggers to store the last numbers of a population, perhaps over a network."""
INTERRUPTED_SECONDS = 5.0
"""Time after an interrupt, less than the time given to workers by the command."""

Values = dict[str, float]
"""Finite numbers by name, such as "tvd/raw/64"."""


class Loggers:
    """Loggers of all populations trained by this process."""

    def __init__(self, loggers: Sequence[Logger], say: Callable[[str], None]) -> None:
        self._loggers, self._say = {logger.name: logger for logger in loggers}, say

    @contextmanager
    def following(self, population: Sequence[Experiment], folder: Path) -> Iterator[Following | None]:
        """Context with the follower of one population; None without loggers. The exit ends all open runs.

        folder: folder of the checkpoint. Handles of runs in loggers are kept there for a resumed training.
        """
        if not self._loggers:
            yield None
            return
        runs = {experiment.run_id: logged(experiment.record) for experiment in population}
        threads = [_Thread(logger, runs, folder) for logger in self._loggers.values()]
        following = Following(population, threads, self._say)
        seconds = PATIENCE_SECONDS
        try:
            yield following
        except BaseException as error:  # an interrupt ends the loggers' records, too; the error goes on
            following.stopped(error)
            if not isinstance(error, Exception):
                seconds = INTERRUPTED_SECONDS
            raise
        finally:
            latest = time.monotonic() + seconds
            for thread in threads:
                thread.calls.put(None)  # all before the first wait, so that loggers end at the same time
            for thread in threads:
                if thread.failed(latest - time.monotonic()):
                    del self._loggers[thread.logger.name]
            following.pass_on()


class Following:
    """A :class:`lgbench.training.train.Follower` of one population: names the numbers and sends them to loggers."""

    def __init__(self, population: Sequence[Experiment], threads: Sequence[_Thread], say: Callable[[str], None]) -> None:
        self._runs, self._threads, self._say = [experiment.run_id for experiment in population], threads, say
        self._open = set(self._runs)

    def curve(self, step: int, loss: Sequence[float], gradient_norm: Sequence[float]) -> None:
        for run, values in zip(self._runs, zip(loss, gradient_norm, strict=True), strict=True):
            self._log(run, "curve", step, finite(zip(CURVE_METRICS, values, strict=True)))

    def measured(self, step: int, found: Any) -> None:
        for run, own in zip(self._runs, found, strict=True):
            scores = map(Score._make, own)
            self._log(run, "measured", step, finite((name_of(s.metric, s.weights, s.length), s.value) for s in scores))

    def finished(self, index: int, path: Path) -> None:
        """Log the final scores of a model from its run file, and end its run."""
        with suppress(RunFileError):  # the file may be removed by hand
            step, values, end = final(path)
            self._log(self._runs[index], "final", step, values)
            self._end(self._runs[index], end)

    def stopped(self, error: BaseException) -> None:
        """End all open runs with the exception of the training as reason."""
        reason = located(error) if isinstance(error, Exception) else "interrupted"
        for run in sorted(self._open):
            self._end(run, RunEnd("failed" if isinstance(error, Exception) else "stopped", reason))

    def pass_on(self) -> None:
        """Show the messages of logger threads. Called by the training thread, the only thread allowed to use the display."""
        for thread in self._threads:
            while not thread.said.empty():
                self._say(thread.said.get())

    def _log(self, run: str, kind: str, step: int, values: Values) -> None:
        self.pass_on()
        for thread in self._threads:
            if values:
                thread.calls.put(partial(thread.log, run, kind, step, values))

    def _end(self, run: str, end: RunEnd) -> None:
        self._open.discard(run)
        for thread in self._threads:
            thread.calls.put(partial(thread.end, run, end))


class _Kept(msgspec.Struct):
    """Handle of a run in a logger."""

    handle: str
    steps: dict[str, int] = {}
    """Latest step by kind of values, since a resumed training repeats values already sent to the logger."""


class _Thread:
    """Thread of one logger for one population. Ends at the first exception of the logger."""

    def __init__(self, logger: Logger, runs: dict[str, LoggedRun], folder: Path) -> None:
        self.logger, self.said = logger, queue.Queue[str]()
        self.calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._file = folder.absolute() / f"{logger.name}.logger.json"
        self._open: dict[str, OpenRun] = {}
        self._kept: dict[str, _Kept] = {}
        self._failed = False
        for run_id, run in runs.items():
            self.calls.put(partial(self._start, run_id, run))
        # A daemon, because a logger that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name=f"logger {logger.name}", daemon=True)
        self._before = self._handles()  # before the thread writes the file
        self._kept |= self._before  # kept until each is resumed, since the process may be killed meanwhile
        self._thread.start()

    def log(self, run: str, kind: str, step: int, values: Values) -> None:
        if step > self._kept[run].steps.get(kind, 0):
            self._open[run].log(step, values)
            self._kept[run].steps[kind] = step
            self._keep()

    def end(self, run: str, end: RunEnd) -> None:
        self._open.pop(run).end(end)

    def failed(self, seconds: float) -> bool:
        """Whether the logger failed, or has calls left after a wait of `seconds`."""
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive() and not self._failed:
            self.said.put(f"{self.logger.name} did not answer in time, and may lack the last numbers; the run files have them")
        return self._failed or self._thread.is_alive()

    def _work(self) -> None:
        while call := self.calls.get():
            try:
                call()
            except BaseException as error:  # a plugin's code may raise anything, such as SystemExit
                self._failed = True
                reason = message_of(error)
                self.said.put(f"{self.logger.name} follows the runs no longer: {reason}; training goes on")
                return

    def _start(self, run_id: str, run: LoggedRun) -> None:
        kept = self._before.get(run_id)
        again = self.logger.resume(run, kept.handle) if kept else None
        if kept and not again:
            self.said.put(f"{self.logger.name} cannot resume the run that it had for {run.name}, so a new one begins")
        self._open[run_id] = again or self.logger.start(run)
        self._kept[run_id] = _Kept(self._open[run_id].handle, kept.steps if kept and again else {})
        self._keep()

    def _handles(self) -> dict[str, _Kept]:
        """Handles of an earlier process. A damaged file counts as none."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, _Kept])
        except (OSError, msgspec.MsgspecError):
            return {}

    def _keep(self) -> None:
        with suppress(OSError), replaced(self._file) as partial:  # another process may have removed the folder
            partial.write_bytes(msgspec.json.encode(self._kept))


def name_of(metric: str, weights: str, length: int) -> str:
    """Name of a score in a logger. Slashes group the scores of a metric."""
    return f"{metric}/{weights}/{length}"


def finite(values: Iterable[tuple[str, float | None]]) -> Values:
    """Finite values by name, without missing, infinite and NaN values."""
    return {name: value for name, value in values if value is not None and math.isfinite(value)}


def final(path: Path) -> tuple[int, Values, RunEnd]:
    """Last step, final scores and end of a run, from its file. Raises RunFileError."""
    rows = [row for row in run_files.read(path).to_pylist() if row["weights"] != CONTEXT_FREE and row["layer"] is None]
    step = max(row["step"] for row in rows)
    scores = (row for row in rows if row["step"] == step and row["length"] is not None and row["metric"] not in SOUNDNESS)
    values = finite((name_of(row["metric"], row["weights"], row["length"]), row["value"]) for row in scores)
    return step, values, RunEnd("finished", diverged_step=rows[0]["diverged_step"])


def logged(record: ExperimentRecord) -> LoggedRun:
    """Name, tags and settings of a run for loggers. Settings have names such as train.steps and model.layers."""
    protocol, plugins = str(record.protocol), ", ".join(f"{plugin.name} {plugin.version}" for plugin in record.plugins)
    tags = {name: getattr(record, name) for name in ("task", "family", "entry", "run_id")}
    names = ("task_version", "architecture", *PART_KINDS, "optimizer", "seed")
    config: dict[str, Setting] = {
        **{name: tags[name] for name in ("task", "family", "entry")},
        **{name: getattr(record, name) for name in names},
        **all_settings(record.train, record.evaluate, dict(record.options)),
        "averagers": ", ".join(record.averagers),
        "protocol": protocol,
        "plugins": plugins,
        "tuned": record.tuning is not None,
        "lgbench": VERSION,
    }
    return LoggedRun(run_files.run_name(record), tags | {"seed": str(record.seed), "protocol": protocol}, config)
