"""A worker process: trains the populations that its command sends, one after the other, and tells it how they go.

It ends when its input does, in the middle of a population too: then the command was interrupted or killed.
"""

from __future__ import annotations

import _thread
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

import torch

from lgbench.errors import RunFailed
from lgbench.execution import messages
from lgbench.execution.device import Execution
from lgbench.execution.executor import located, out_of_memory
from lgbench.execution.json_lines import received, send
from lgbench.execution.lease import LeaseLost, Lent
from lgbench.execution.progress import Phase, ReportProgress
from lgbench.execution.runner import PopulationRunner
from lgbench.execution.scheduler import Assignment
from lgbench.execution.tracking import Tracking
from lgbench.experiment.replan import Replanner
from lgbench.extensions.registry import Registry

REPORT_SECONDS = 0.2
"""Between two reports of progress."""


class Telling:
    """A display that tells the command."""

    def __init__(self, output: TextIO) -> None:
        self.output = output

    def say(self, sentence: str) -> None:
        send(self.output, messages.Say(sentence))

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[ReportProgress]:
        send(self.output, messages.Begin(phase))
        told = 0.0

        def report(done: int, loss: object) -> None:
            nonlocal told
            now = time.monotonic()
            if done == phase.total or now - told >= REPORT_SECONDS:
                told = now
                send(self.output, messages.Progress(done, loss() if callable(loss) else None))

        yield report
        send(self.output, messages.End())

    def all(self, experiments: object, workers: int) -> AbstractContextManager[object]:
        return nullcontext()


class Worker:
    """Trains what it is sent."""

    def __init__(self, setup: messages.Setup, output: TextIO) -> None:
        self.output = output
        registry = Registry.load(files=map(Path, setup.plugins))
        self._experiments = Replanner(registry)
        execution = Execution(torch.device(setup.device), checkpoint=setup.checkpoint, keep_weights=setup.keep_weights)
        display = Telling(output)
        tracking = Tracking([registry.trackers[name] for name in setup.trackers], display.say)
        self._runner = PopulationRunner(execution, Path(setup.results), display, registry.loaded(), tracking)

    def train(self, order: messages.Train) -> messages.Finished:
        """Train and test a population. Raises OSError where the command is gone."""
        try:
            experiments = [self._experiments.experiment(record, order.probes) for record in order.records]
            for experiment, record in zip(experiments, order.records, strict=True):
                if experiment.run_id != record.run_id:
                    raise RunFailed(f"{record.title}: a plugin has changed since the command began; run it again")
            for path in self._runner.run(Assignment(experiments, Lent(Path(order.folder)), order.models, order.compile)):
                send(self.output, messages.Written(str(path)))
        except BrokenPipeError:
            raise
        except LeaseLost as error:
            return messages.Finished(str(error), lost=True)
        except Exception as error:  # a plugin's model may raise anything
            return messages.Finished(located(error), memory=out_of_memory(error))
        return messages.Finished()


def main() -> None:
    """Read orders from standard input and write what happens to standard output, which plugins cannot write to."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    signal.signal(signal.SIGTERM, _stop)
    orders: queue.Queue[messages.ToWorker | None] = queue.Queue()
    busy = threading.Event()

    def read() -> None:
        for order in received(sys.stdin, messages.to_worker):
            orders.put(order)
        orders.put(None)
        if busy.is_set():
            _thread.interrupt_main(signal.SIGTERM)

    threading.Thread(target=read, name="orders", daemon=True).start()
    worker: Worker | Exception | None = None
    try:
        while (order := orders.get()) is not None:
            busy.set()
            if isinstance(order, messages.Setup):
                worker = _set_up(order, output)
            elif isinstance(worker, Worker):
                send(output, worker.train(order))
            elif worker:
                send(output, messages.Finished(f"a worker process cannot start: {located(worker)}"))
            busy.clear()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)  # the command is gone, and nobody would read what else there is to say


def _set_up(setup: messages.Setup, output: TextIO) -> Worker | Exception:
    try:
        return Worker(setup, output)
    except Exception as error:  # a plugin has changed since the command began, or changes with the process
        return error


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt
