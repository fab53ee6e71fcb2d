"""Worker processes: by default on a CPU one per core, with one thread each; and jobs for them, here or on another machine.

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
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from lgbench.contracts import Demand, Executor, Pool
from lgbench.errors import WorkerError, WorkerKilled, lacks_memory, located
from lgbench.execution.device import Execution, choose_device
from lgbench.execution.loggers import Loggers
from lgbench.execution.progress import Phase, ProgressDisplay, ReportProgress
from lgbench.execution.runner import PopulationRunner
from lgbench.execution.work_queue import RECORD, PlannedPopulation
from lgbench.experiment.components import experiments_of
from lgbench.extensions.loading import parted
from lgbench.extensions.registry import Registry

PATIENCE_SECONDS = 10.0
"""Time for a worker to stop before a kill. Compilation cannot be interrupted quickly."""
REPORT_SECONDS = 0.2
"""Time between two progress messages."""
LOOK_SECONDS = 0.05
"""Time between two looks at populations in training."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
BOOT = """
import sys
sys.path[:] = {path}  # the same as of the command: with -c a file select.py in the current folder would hide the one of Python
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to workers too, but the command stops the workers
from lgbench.execution.workers import serve
serve({pipe})
"""


@dataclass(frozen=True)
class Setup:
    """Settings shared by all populations of a command."""

    results: Path
    """Folder of the run files."""
    execution: Execution
    plugins: Mapping[Path, bytes] = field(default_factory=dict)
    """Plugin files of the command, with their contents. A worker loads only the files of its populations."""
    loggers: Mapping[str, str] = field(default_factory=dict)
    """Plugin of each logger of the runs, by logger. Workers load the plugins of loggers, too."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job."""

    error: Exception | None = None
    written: Sequence[Path] = ()
    """New run files in the results folder, possibly from before an error."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of run files and weights by name, from another machine."""
    said: Sequence[str] = ()
    """Sentences for the user, from another machine."""


@dataclass(frozen=True)
class Job:
    """A population to train and test: by a worker process, or as a picklable function on another machine."""

    setup: Setup
    population: PlannedPopulation
    folder: Path
    """Folder of the checkpoint, perhaps invisible to other machines."""

    def __call__(self) -> Outcome:
        """Train and test on another machine, in a worker process. Raises no exception."""
        display = _Said()
        try:
            return replace(self._elsewhere(display), said=display.sentences)
        except Exception as error:  # the disk may be full
            return Outcome(_sendable(error), said=display.sentences)

    def _elsewhere(self, display: ProgressDisplay) -> Outcome:
        shared, setup = (self.folder / RECORD).exists(), self.setup  # whether this machine sees the results folder
        with tempfile.TemporaryDirectory(prefix="lgbench-", dir=self.folder if shared else None) as name:
            scratch, results = Path(name), Path(name, "runs")
            results.mkdir()
            plugins = {scratch / path.name: content for path, content in setup.plugins.items()}
            for path, content in plugins.items():
                parted(path)[0].write_bytes(content)
            # Another machine has devices of its own, and a job is one worker.
            execution = replace(setup.execution, device=choose_device(setup.execution.device.type), workers=1)
            here = replace(setup, results=results, execution=execution, plugins=plugins)
            outcome = trained_alone(Job(here, self.population, self.folder if shared else scratch), display)
            return Outcome(outcome.error, files={path.name: path.read_bytes() for path in results.iterdir()})


class _Said(ProgressDisplay):
    """Display that keeps the sentences for the command."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def trained_alone(job: Job, display: ProgressDisplay) -> Outcome:
    """Outcome of a job in a worker process of its own."""
    with closing(Workers(1, display)) as workers:
        worker = workers.submit(job)
        while not worker.done():
            time.sleep(LOOK_SECONDS)
        return worker.result()


@dataclass(frozen=True)
class Progress:
    """Message from a worker: number of steps done in the phase and, in training, mean loss of the latest step."""

    done: int
    loss: float | None


@dataclass(frozen=True)
class Finished:
    """Message from a worker: end of the population, perhaps by an error."""

    error: Exception | None = None


FromWorker = str | Phase | Progress | Path | Finished
"""Messages from a worker: a sentence for the user, a phase until the next one, progress, a new run file, the end."""


class Worker:
    """Worker process, from the side of the command. Its population is a :class:`lgbench.Submitted`."""

    def __init__(self, job: Job, display: ProgressDisplay, cancel: Callable[[], None]) -> None:
        """Start a process for jobs with the setup and the plugins of `job`. `cancel` ends all workers."""
        self.plugins, self.display, self.cancel, self.busy = job.population.plugins, display, cancel, False
        self._written: list[Path] = []
        self._finished: Finished | None = None
        self._phase = ExitStack()
        self._report: ReportProgress | None = None
        execution = job.setup.execution
        threads = ONE_THREAD if execution.device.type == "cpu" or execution.workers > 1 else {}
        self.pipe, theirs = Pipe()
        # Not multiprocessing's spawn, which imports the user's script again and so would begin the same run.
        command = [sys.executable, "-c", BOOT.format(pipe=theirs.fileno(), path=[*map(str, sys.path)])]
        environ = os.environ | threads
        # Prints of plugins go to standard error, since standard output belongs to the command.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, env=environ, pass_fds=[theirs.fileno()])
        theirs.close()  # else the pipe would not end with the worker

    def begin(self, job: Job) -> None:
        """Send a job to the worker."""
        self.busy, self._written, self._finished = True, [], None
        with suppress(OSError):  # a dead worker is noticed at the next message
            self.pipe.send(job)

    def done(self) -> bool:
        """Show the messages that have come. Whether the job has ended."""
        while not self._finished and self.pipe.poll():
            self._show(self._received())
        return self._finished is not None

    def result(self) -> Outcome:
        """Outcome of the job, after its end."""
        assert self._finished
        self.busy = False
        return Outcome(self._finished.error, self._written)

    def _received(self) -> FromWorker:
        try:
            message: FromWorker = self.pipe.recv()
        except (EOFError, OSError, UnpicklingError):  # the worker died, perhaps in the middle of a message
            return Finished(self._death())
        return message

    def _show(self, message: FromWorker) -> None:
        match message:
            case str():
                self.display.say(message)
            case Phase():
                self._phase.close()
                self._report = self._phase.enter_context(self.display.phase(message))
            case Progress(done, loss) if self._report:
                self._report(done, None if loss is None else lambda: loss)
            case Path():
                self._written.append(message)
            case Finished():
                self._phase.close()
                self._finished = message

    @property
    def died(self) -> bool:
        return self.process.poll() is not None

    def close(self, seconds: float = PATIENCE_SECONDS) -> None:
        """End the worker, also in the middle of a job; kill it after `seconds`."""
        self.pipe.close()
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
        if code == -signal.SIGKILL:
            return WorkerKilled("the worker process was killed, most often for lack of memory")
        how = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
        return WorkerError(f"the worker process ended with {how}; it had loaded the plugins {' and '.join(self.plugins)}")


class Workers:
    """At most so many worker processes, until they are closed."""

    def __init__(self, most: int, display: ProgressDisplay) -> None:
        self.most, self.display = most, display
        self._workers: list[Worker] = []

    def submit(self, job: Callable[[], Any]) -> Worker:
        """Give a job to a worker with exactly the same plugins, if necessary a new worker."""
        assert isinstance(job, Job)
        idle = [worker for worker in self._workers if not worker.busy]
        worker = next((each for each in idle if each.plugins == job.population.plugins and not each.died), None)
        if not worker:
            if len(self._workers) == self.most:
                idle[0].close()
                self._workers.remove(idle[0])
            worker = Worker(job, self.display, self.close)
            self._workers.append(worker)
        worker.begin(job)
        return worker

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()  # asks it to end
        latest = time.monotonic() + PATIENCE_SECONDS
        for worker in self._workers:
            worker.close(latest - time.monotonic())
        self._workers.clear()


@dataclass(frozen=True)
class Local(Executor):
    """Worker processes on this machine."""

    name = "local"

    display: ProgressDisplay
    workers: int

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Pool]:
        with closing(Workers(self.workers, self.display)) as workers:
            yield Pool(workers.submit, self.workers)


def serve(descriptor: int) -> None:
    """Main function of a worker process. Ends with the pipe, which closes when the command ends, even by a kill."""
    signal.signal(signal.SIGTERM, _interrupt)
    pipe: Connection[Any, Any] = Connection(descriptor)
    jobs: queue.Queue[Job | None] = queue.Queue()
    busy = threading.Event()

    def read() -> None:
        try:
            with suppress(EOFError, OSError):
                while True:
                    jobs.put(pipe.recv())
        finally:  # a job may need a module that is not here; the worker then ends, and does not wait
            jobs.put(None)
        if busy.is_set():
            _thread.interrupt_main(signal.SIGTERM)  # workers ignore SIGINT, see BOOT

    # A thread, so that the end of the command stops a training in the middle.
    threading.Thread(target=read, name="jobs", daemon=True).start()
    train: Callable[[Job], Iterator[Path]] | None = None
    try:
        while job := jobs.get():
            busy.set()
            try:
                train = train or trainer(job, _Telling(pipe))
                for path in train(job):
                    pipe.send(path)
            except BrokenPipeError:
                raise
            except Exception as error:  # a plugin's model may raise anything, including exceptions that cannot be pickled
                pipe.send(Finished(_sendable(error)))
            else:
                pipe.send(Finished())
            busy.clear()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)  # the command is gone, so no message can be sent


def trainer(job: Job, display: ProgressDisplay) -> Callable[[Job], Iterator[Path]]:
    """Function that trains and tests jobs in this process, with only the plugins of `job` loaded. Yields new run files."""
    setup = job.setup
    try:
        registry = Registry.load(files=[*setup.plugins], only=[*job.population.plugins, *setup.loggers.values()])
        loggers = Loggers([registry.loggers[name] for name in setup.loggers], display.say)
    except Exception as error:  # a plugin has changed since the command began
        raise WorkerError(f"a worker process cannot start: {located(error)}") from error
    runner = PopulationRunner(setup.execution, setup.results, display, registry.loaded(), loggers)

    def train(job: Job) -> Iterator[Path]:
        experiments = list(experiments_of(job.population.runs, job.population.measurements, registry))
        yield from runner.run(job.population, experiments, job.folder)

    return train


def _sendable(error: Exception) -> Exception:
    """Picklable error with the message, file and line of another error."""
    return (WorkerKilled if lacks_memory(error) else WorkerError)(located(error))


@dataclass(frozen=True)
class _Telling(ProgressDisplay):
    """Display of a worker: sends all messages to the command."""

    pipe: Connection[Any, Any]

    def say(self, sentence: str) -> None:
        self.pipe.send(sentence)

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
