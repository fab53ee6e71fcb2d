"""Populations as tasks of a Ray cluster. Imported only where Ray is asked for.

The command holds the claims. Ray places each population on a node, and starts it again where that node dies. Run files come
back as bytes, so nodes need no common folder. Where they do have one, a population that is started again goes on from its
checkpoint.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from lgbench.errors import UsageError, first_line
from lgbench.execution.arrivals import filed
from lgbench.execution.device import Execution, choose_device
from lgbench.execution.executor import (
    WAIT_SECONDS,
    Done,
    RunPopulation,
    WorkerError,
    WorkerKilled,
    ended,
    located,
    out_of_memory,
)
from lgbench.execution.lease import HEARTBEAT, LeaseLost, Lent
from lgbench.execution.manner import Manner
from lgbench.execution.populations import PlannedPopulation, title_of
from lgbench.execution.progress import ProgressDisplay, SilentProgress
from lgbench.execution.remote import Private, made_in
from lgbench.execution.scheduler import Work
from lgbench.execution.workers import ONE_THREAD
from lgbench.extensions.loading import parted

RETRIES = 20
"""How often Ray starts a population again whose node or process died."""
PASSED_ON = ("LGBENCH_PLUGINS", "LGBENCH_TRACE")


@dataclass(frozen=True)
class Order:
    """A population for a task, as plain values."""

    population: PlannedPopulation
    device: str
    checkpoint: float
    folder: str
    """The folder of the claim, which the node may not see."""
    plugins: tuple[tuple[str, bytes], ...]
    """Names and contents of plugin files."""
    keep_weights: bool = False


@dataclass(frozen=True)
class Answer:
    """How a task went."""

    node: str
    files: dict[str, bytes]
    said: list[str]
    error: str | None = None
    lost: bool = False
    """Whether another command has the population."""
    memory: bool = False
    """Whether memory did not suffice."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Inside, Ray is connected to a cluster: the one that the process is connected to, that of the address, or a new one."""
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UsageError(f"no Ray cluster answers at {address or 'this machine'}: {first_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def execution(manner: Manner) -> Execution:
    """As many workers as the cluster has cores or GPUs, unless the user says how many."""
    kind = "GPU" if choose_device(manner.device).type == "cuda" else "CPU"
    resources: Any = ray.cluster_resources  # Ray has no types for it
    found = int(resources().get(kind, 0))
    if not found:
        raise UsageError(f"no node of the Ray cluster has a {kind}: --device chooses between CPUs and GPUs")
    return replace(manner, workers=manner.workers or found).here()


class RayTasks:
    """Runs populations as tasks of the cluster that Ray is connected to."""

    def __init__(self, execution: Execution, runs: int, plugins: Sequence[Path], display: ProgressDisplay) -> None:
        self.execution, self.runs, self.display = execution, runs, display
        self._plugins = tuple((path.name, parted(path)[0].read_bytes()) for path in plugins)
        environ = ONE_THREAD | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._needs: dict[str, Any] = {
            "num_cpus": 1,
            "num_gpus": 1 if execution.device.type == "cuda" else 0,
            "max_retries": RETRIES,
            "runtime_env": {"env_vars": environ},
        }
        self._running: dict[Any, Work] = {}
        self._done = 0

    def run(self, left: Iterable[Work | None], run_population: RunPopulation) -> Iterator[Done]:
        """`run_population` is not used: each node has its own."""
        try:
            yield from self._run(left)
        finally:
            self._cancel()

    def _run(self, left: Iterable[Work | None]) -> Iterator[Done]:
        source: Iterator[Work | None] | None = iter(left)
        look_again = 0.0
        while True:
            while source and len(self._running) < self.execution.workers and time.monotonic() >= look_again:
                match next(source, _END):
                    case Work() as work:
                        self._running[self._started(work)] = work
                    case None:
                        look_again = time.monotonic() + WAIT_SECONDS
                    case _:
                        source = None
            if not source and not self._running:
                return
            if not self._running:
                time.sleep(WAIT_SECONDS)
                continue
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=WAIT_SECONDS)
            for task in ready:
                yield self._ended(self._running.pop(task), _answer(task))
                source = source or iter(left)  # its runs may be left to be tried again

    def _started(self, work: Work) -> Any:
        """A task of Ray, which trains this population."""
        population = PlannedPopulation.of(work.claim.experiments, work.models, work.compile)
        folder = str(work.claim.folder.resolve())
        execution = self.execution
        order = Order(population, execution.device.type, execution.checkpoint, folder, self._plugins, execution.keep_weights)
        return ray.remote(train).options(name=population.title, **self._needs).remote(order)

    def _ended(self, work: Work, answer: Answer) -> Done:
        """File what came back, and end the claim."""
        for sentence in answer.said:
            self.display.say(sentence)
        written: list[Path] = []
        error: Exception | None = None
        try:
            written = filed(work, answer.files, self.display)
        except Exception as raised:  # the disk may be full
            error = raised
        if answer.error is not None:
            kind = LeaseLost if answer.lost else WorkerKilled if answer.memory else WorkerError
            error = error or kind(answer.error)
        if not error:
            self._done += len(written)
            title = title_of([experiment.record for experiment in work.claim.experiments])
            self.display.say(f"{title}: done on node {answer.node}, {self._done} runs written of {self.runs}")
        return ended(work, written, error)

    def _cancel(self) -> None:
        """Give back what is running, as after an interrupt."""
        for task, work in self._running.items():
            with suppress(RayError, RuntimeError):
                ray.cancel(task, force=True)
            with suppress(KeyboardInterrupt), work.claim:
                raise KeyboardInterrupt
        self._running.clear()


_END = object()


def _answer(task: Any) -> Answer:
    """The answer of a task; if the task failed, an answer that has only the reason."""
    try:
        answer: Answer = ray.get(task)
    except RayTaskError as error:  # this node and that one do not understand each other
        return Answer("", {}, [], f"a Ray task failed: {first_line(error.cause or error)}")
    except RayError as error:
        return Answer("", {}, [], f"a Ray task was lost {RETRIES + 1} times: {first_line(error)}", memory=True)
    return answer


class _Said(SilentProgress):
    """Keeps the sentences for the command."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def train(order: Order) -> Answer:
    """Train and test a population on the node that Ray has chosen. It raises nothing, for not every error can be sent."""
    said = _Said()
    node = str(ray.get_runtime_context().get_node_id())[:8]
    try:
        files = _made(order, said)
    except LeaseLost as error:
        return Answer(node, {}, said.sentences, str(error), lost=True)
    except Exception as error:  # a plugin's model may raise anything
        return Answer(node, {}, said.sentences, located(error), memory=out_of_memory(error))
    return Answer(node, files, said.sentences)


def _made(order: Order, said: _Said) -> dict[str, bytes]:
    plugins = [_file(name, content) for name, content in order.plugins]
    execution = Execution(choose_device(order.device), checkpoint=order.checkpoint, keep_weights=order.keep_weights)
    claim = Path(order.folder)
    shared = (claim / HEARTBEAT).exists()
    with tempfile.TemporaryDirectory(prefix="lgbench-", dir=claim if shared else None) as folder:
        held = Lent(claim) if shared else Private(Path(folder))
        return made_in(Path(folder), held, order.population, plugins, execution, said)


@cache
def _file(name: str, content: bytes) -> Path:
    """A plugin file of the command, on this node: at one place as long as this process lives, so that it is loaded once."""
    folder = Path(tempfile.mkdtemp(prefix="lgbench-plugin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    parted(folder / name)[0].write_bytes(content)
    return folder / name
