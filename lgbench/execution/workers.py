"""Worker processes for training on this machine: by default on a CPU one per core, with one thread each.

Two threads would wait for each other at every operator, and a whole grid of models would exceed the caches. A worker loads only
the plugins of its populations, so no other plugin can change a number. The command locks populations and gives each to a
worker. A dead worker loses only the steps since the latest checkpoint.
"""

from __future__ import annotations

import _thread
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from lgbench.errors import WorkerError, WorkerKilled, lacks_memory, located
from lgbench.execution.device import Execution
from lgbench.execution.progress import Phase, ProgressDisplay, ReportProgress
from lgbench.execution.runner import PopulationRunner
from lgbench.execution.tracking import Tracking
from lgbench.execution.work_queue import Dispatcher, Done, LockedPopulation, PlannedPopulation, released
from lgbench.experiment.components import experiments_of
from lgbench.extensions.registry import Registry

PATIENCE_SECONDS = 10.0
"""Time for a worker to stop before a kill. Compilation cannot be interrupted quickly."""
REPORT_SECONDS = 0.2
"""Time between two progress messages."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
BOOT = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to workers too, but the command stops the workers
from lgbench.execution.workers import serve
serve({pipe})
"""


@dataclass(frozen=True)
class Setup:
    """Settings shared by all populations of a command."""

    results: Path
    execution: Execution
    files: tuple[Path, ...]
    """Plugin files of the command. A worker loads only the files of its populations."""
    trackers: Mapping[str, str]
    """Plugin of each tracker of the runs, by tracker. Workers load the plugins of trackers, too."""


@dataclass(frozen=True)
class Train:
    """Message to a worker: a population to train and test. Setup and plugins are the same for all populations of a worker."""

    setup: Setup
    population: PlannedPopulation
    folder: Path
    """Folder of the checkpoint."""


@dataclass(frozen=True)
class Say:
    """Message from a worker: a sentence for the user."""

    sentence: str


@dataclass(frozen=True)
class Progress:
    """Message from a worker: number of steps done in the phase and, in training, mean loss of the latest step."""

    done: int
    loss: float | None


@dataclass(frozen=True)
class Written:
    """Message from a worker: path of a new run file."""

    path: Path


@dataclass(frozen=True)
class Finished:
    """Message from a worker: end of the population, perhaps by an error."""

    error: Exception | None = None


FromWorker = Say | Phase | Progress | Written | Finished
"""Messages from a worker. A phase ends at the next Phase or at Finished."""


class Worker:
    """Worker process, from the side of the command."""

    def __init__(self, setup: Setup, plugins: Sequence[str], display: ProgressDisplay, said: set[str]) -> None:
        """Start a process.

        `plugins` are names of the distributions and files of the worker's populations. `said` is shared by all workers and has
        the sentences already shown to the user.
        """
        self.setup, self.plugins, self.display, self._said = setup, tuple(plugins), display, said
        self.locked: LockedPopulation | None = None
        self.written: list[Path] = []
        self._phase = ExitStack()
        self._report: ReportProgress | None = None
        threads = ONE_THREAD if setup.execution.device.type == "cpu" or setup.execution.workers > 1 else {}
        self.pipe, theirs = Pipe()
        # Not multiprocessing's spawn, which imports the user's script again and so would begin the same run.
        command = [sys.executable, "-c", BOOT.format(pipe=theirs.fileno())]
        environ = os.environ | threads
        # Prints of plugins go to standard error, since standard output belongs to the command.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, env=environ, pass_fds=[theirs.fileno()])
        theirs.close()

    def train(self, population: PlannedPopulation, folder: Path, locked: LockedPopulation | None = None) -> None:
        """Send a population to the worker."""
        self.locked, self.written = locked, []
        with suppress(OSError):  # a dead worker is noticed at the next message
            self.pipe.send(Train(self.setup, population, folder))

    def heard(self) -> Finished | None:
        """Wait for the next message and show it. Returns a Finished message, else None."""
        try:
            message: FromWorker = self.pipe.recv()
        except (EOFError, OSError, UnpicklingError):  # the worker died, perhaps in the middle of a message
            message = Finished(self._death())
        match message:
            case Say(sentence):
                if sentence not in self._said:  # a tracker may fail in each worker
                    self._said.add(sentence)
                    self.display.say(sentence)
            case Phase():
                self._phase.close()
                self._report = self._phase.enter_context(self.display.phase(message))
            case Progress(done, loss) if self._report:
                self._report(done, None if loss is None else lambda: loss)
            case Written(path):
                self.written.append(path)
            case Finished():
                self._phase.close()
                return message
        return None

    @property
    def died(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """Ask the worker to end, also in the middle of a population."""
        self.pipe.close()

    def close(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for the end of the worker; kill it after `seconds`."""
        self.stop()
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._phase.close()

    def _death(self) -> Exception:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_SECONDS)
        code = self.process.poll()
        if code is not None and code < 0:
            return WorkerKilled(f"the worker process was killed by signal {-code}, most often for lack of memory")
        loaded = " and ".join(self.plugins)
        return WorkerError(f"the worker process ended with exit code {code}; it had loaded the plugins {loaded}")


class Workers(Dispatcher):
    """Dispatcher for worker processes of this machine."""

    def __init__(self, setup: Setup, display: ProgressDisplay) -> None:
        self.most, self.display = setup.execution.workers, display
        self._setup = setup
        self._said: set[str] = set()
        self._workers: list[Worker] = []

    @property
    def busy(self) -> int:
        return len(self._busy())

    def _busy(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.locked]

    def begin(self, locked: LockedPopulation) -> None:
        """Give a population to a worker with exactly the same plugins, if necessary a new worker."""
        population = locked.planned
        idle = [worker for worker in self._workers if not worker.locked]
        worker = next((each for each in idle if each.plugins == population.plugins and not each.died), None)
        if not worker:
            if len(self._workers) == self.most:
                idle[0].close()
                self._workers.remove(idle[0])
            worker = Worker(self._setup, population.plugins, self.display, self._said)
            self._workers.append(worker)
        worker.train(population, locked.folder, locked)

    def ended(self, seconds: float | None) -> Iterator[Done]:
        busy = self._busy()
        ready = wait([worker.pipe for worker in busy], seconds)
        for worker in busy:
            if worker.pipe in ready and (finished := worker.heard()) and (locked := worker.locked):
                worker.locked = None
                yield released(locked, worker.written, finished.error)

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        latest = time.monotonic() + PATIENCE_SECONDS
        for worker in self._workers:
            worker.close(latest - time.monotonic())
            if worker.locked:
                worker.locked.release(KeyboardInterrupt())
        self._workers.clear()


def trained_alone(population: PlannedPopulation, folder: Path, setup: Setup, display: ProgressDisplay) -> list[Path]:
    """Run files of one population, trained in a separate worker. Raises the error of a failed training."""
    worker = Worker(setup, population.plugins, display, set())
    try:
        worker.train(population, folder)
        while not (finished := worker.heard()):
            pass
    finally:
        worker.close()
    if finished.error:
        raise finished.error
    return worker.written


def serve(descriptor: int) -> None:
    """Main function of a worker process. Ends with the pipe, which closes when the command ends, even by a kill."""
    signal.signal(signal.SIGTERM, _interrupt)
    pipe: Connection[Any, Any] = Connection(descriptor)
    orders: queue.Queue[Train | None] = queue.Queue()
    busy = threading.Event()

    def read() -> None:
        with suppress(EOFError, OSError):
            while True:
                orders.put(pipe.recv())
        orders.put(None)
        if busy.is_set():
            _thread.interrupt_main(signal.SIGTERM)

    threading.Thread(target=read, name="orders", daemon=True).start()
    trainer: Trainer | None = None
    try:
        while order := orders.get():
            busy.set()
            try:
                trainer = trainer or Trainer(order.setup, order.population.plugins, _Telling(pipe))
                for path in trainer.train(order):
                    pipe.send(Written(path))
            except BrokenPipeError:
                raise
            except Exception as error:  # a plugin's model may raise anything, including exceptions that cannot be pickled
                pipe.send(Finished(_sendable(error)))
            else:
                pipe.send(Finished())
            busy.clear()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)  # the command is gone, so no message can be sent


class Trainer:
    """Training of populations in this process, with only the plugins of these populations loaded."""

    def __init__(self, setup: Setup, plugins: Sequence[str], display: ProgressDisplay) -> None:
        try:
            registry = Registry.load(files=setup.files, only=[*plugins, *setup.trackers.values()])
            tracking = Tracking([registry.trackers[name] for name in setup.trackers], display.say)
        except Exception as error:  # a plugin has changed since the command began
            raise WorkerError(f"a worker process cannot start: {located(error)}") from error
        self._registry = registry
        self._runner = PopulationRunner(setup.execution, setup.results, display, registry.loaded(), tracking)

    def train(self, order: Train) -> Iterator[Path]:
        """Train and test a population. Yields each run file when written."""
        population = order.population
        experiments = list(experiments_of(population.runs, population.measurements, self._registry))
        yield from self._runner.run(population, experiments, order.folder)


def _sendable(error: Exception) -> Exception:
    """Picklable error with the message, file and line of another error."""
    return (WorkerKilled if lacks_memory(error) else WorkerError)(located(error))


@dataclass(frozen=True)
class _Telling(ProgressDisplay):
    """Display of a worker: sends all messages to the command."""

    pipe: Connection[Any, Any]

    def say(self, sentence: str) -> None:
        self.pipe.send(Say(sentence))

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[ReportProgress]:
        self.pipe.send(phase)
        told = 0.0

        def report(done: int, loss: object) -> None:
            nonlocal told
            now = time.monotonic()
            if done == phase.total or now - told >= REPORT_SECONDS:
                told = now
                self.pipe.send(Progress(done, loss() if callable(loss) else None))

        yield report


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
