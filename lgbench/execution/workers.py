"""Worker processes on this machine, each with one thread, as many as there are cores.

Two threads would wait for each other at every operator, and all models of a grid at once leave the caches. The command
claims the populations and lends each to a worker. A worker that dies takes nothing with it but the steps since its checkpoint.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lgbench.contracts import Tracker
from lgbench.execution import messages
from lgbench.execution.device import Execution
from lgbench.execution.executor import WAIT_SECONDS, Done, Executor, InProcess, RunPopulation, WorkerError, WorkerKilled, ended
from lgbench.execution.json_lines import received, send
from lgbench.execution.lease import LeaseLost
from lgbench.execution.populations import probes_of
from lgbench.execution.progress import ProgressDisplay, ReportProgress
from lgbench.execution.scheduler import Work
from lgbench.experiment.plan import Plan

PATIENCE_SECONDS = 10.0
"""A worker that was asked to stop and has not done so after so long, such as one that compiles, is killed."""
BOOT = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it too, and says when to stop
from lgbench.execution.worker import main
main()
"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(eq=False)
class _Worker:
    """A worker process, and what it does now."""

    process: subprocess.Popen[str]
    listener: threading.Thread = field(init=False)
    work: Work | None = None
    written: list[Path] = field(default_factory=list)
    phase: ExitStack = field(default_factory=ExitStack)
    report: ReportProgress | None = None

    def send(self, message: messages.ToWorker) -> None:
        assert self.process.stdin
        with suppress(OSError):  # it is dead, and its output says so by ending
            send(self.process.stdin, message)

    def stop(self) -> None:
        """Ask it to end, in the middle of a population too."""
        assert self.process.stdin
        with suppress(OSError):
            self.process.stdin.close()

    def close(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until it has ended; kill it if that takes longer."""
        self.stop()
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.listener is not threading.current_thread():
            self.listener.join()
        self.phase.close()


def executor_for(
    plan: Plan,
    execution: Execution,
    results: Path,
    plugins: Sequence[Path],
    display: ProgressDisplay,
    trackers: Sequence[Tracker] = (),
) -> Executor:
    """This process where it would be the only worker, else worker processes. `trackers` follow their trainings."""
    workers = min(execution.workers, len(plan.experiments))
    return InProcess() if workers == 1 else Workers(execution, results, plugins, display, trackers)


class Workers:
    """Runs populations in worker processes of this machine."""

    def __init__(
        self,
        execution: Execution,
        results: Path,
        plugins: Sequence[Path],
        display: ProgressDisplay,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        self.execution, self.display = execution, display
        device, files, names = str(execution.device), [str(path) for path in plugins], tuple(each.name for each in trackers)
        self._setup = messages.Setup(str(results), device, execution.checkpoint, files, execution.keep_weights, names)
        self._said: set[str] = set()
        self._events: queue.Queue[tuple[_Worker, messages.FromWorker | None]] = queue.Queue()
        self._workers: list[_Worker] = []

    def run(self, left: Iterable[Work | None], run_population: RunPopulation) -> Iterator[Done]:
        """`run_population` is not used: each worker has its own."""
        try:
            yield from self._run(left)
        finally:
            self._stop()

    def _run(self, left: Iterable[Work | None]) -> Iterator[Done]:
        source: Iterator[Work | None] | None = iter(left)
        look_again = 0.0
        while True:
            while source and len(self._busy()) < self.execution.workers and time.monotonic() >= look_again:
                match next(source, _END):
                    case Work() as work:
                        self._give(work)
                    case None:
                        look_again = time.monotonic() + WAIT_SECONDS
                    case _:
                        source = None
            if not source and not self._busy():
                return
            try:
                worker, message = self._events.get(timeout=WAIT_SECONDS if source else None)
            except queue.Empty:
                continue
            if done := self._heard(worker, message):
                yield done
                source = source or iter(left)  # its runs may be left to be tried again

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.work]

    def _give(self, work: Work) -> None:
        """Lend a population to a worker that has nothing to do."""
        worker = next((worker for worker in self._workers if not worker.work), None) or self._start()
        worker.work, worker.written = work, []
        records = [experiment.record for experiment in work.claim.experiments]
        probes = probes_of(work.claim.experiments)
        worker.send(messages.Train(records, str(work.claim.folder), work.models, work.compile, probes))

    def _start(self) -> _Worker:
        command = [sys.executable, "-c", BOOT]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=os.environ | ONE_THREAD)
        worker = _Worker(process)
        worker.listener = threading.Thread(target=self._listen, args=(worker,), name=f"worker {process.pid}", daemon=True)
        self._workers.append(worker)
        worker.send(self._setup)
        worker.listener.start()
        return worker

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout
        with worker.process.stdout as lines:
            for message in received(lines, messages.from_worker):
                self._events.put((worker, message))
        self._events.put((worker, None))

    def _heard(self, worker: _Worker, message: messages.FromWorker | None) -> Done | None:
        """Show what a worker tells. Returns its population once that has ended."""
        match message:
            case messages.Say(sentence):
                if sentence not in self._said:  # a tracker may fail in each worker
                    self._said.add(sentence)
                    self.display.say(sentence)
            case messages.Begin(phase):
                worker.report = worker.phase.enter_context(self.display.phase(phase))
            case messages.Progress(done, loss) if worker.report:
                worker.report(done, None if loss is None else lambda: loss)
            case messages.End():
                worker.phase.close()
            case messages.Written(path):
                worker.written.append(Path(path))
            case messages.Finished(error, lost, memory):
                if error is None:
                    return self._ended(worker, None)
                kind = LeaseLost if lost else WorkerKilled if memory else WorkerError
                return self._ended(worker, kind(error))
            case None:
                self._workers.remove(worker)
                worker.close()
                if worker.work:
                    return self._ended(worker, WorkerKilled(_death(worker.process.returncode)))
        return None

    def _ended(self, worker: _Worker, error: Exception | None) -> Done:
        assert worker.work
        worker.phase.close()
        work, worker.work = worker.work, None
        return ended(work, worker.written, error)

    def _stop(self) -> None:
        """Stop all workers. What they were doing is given back as after an interrupt."""
        for worker in self._workers:
            worker.stop()
        latest = time.monotonic() + PATIENCE_SECONDS
        for worker in self._workers:
            worker.close(latest - time.monotonic())
            if worker.work:
                with suppress(KeyboardInterrupt), worker.work.claim:
                    raise KeyboardInterrupt
        self._workers.clear()


_END = object()


def _death(code: int) -> str:
    how = f"was killed by signal {-code}, most often for lack of memory" if code < 0 else f"ended with exit code {code}"
    return f"the worker process {how}"
