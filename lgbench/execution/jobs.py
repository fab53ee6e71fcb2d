"""Populations as jobs of an executor's engine. The command holds the locks and writes the run files.

Run files come back as bytes, so machines need no common folder. A machine that sees the results folder keeps checkpoints
there, so a job that is started again continues its training.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lgbench.atomic_files import created
from lgbench.contracts.executors import Pool, Submitted
from lgbench.errors import RunFailed, first_line
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
from lgbench.execution.populations import PlannedPopulation
from lgbench.execution.progress import ProgressDisplay, SilentProgress
from lgbench.execution.remote import made_in
from lgbench.execution.scheduler import path_of
from lgbench.execution.work_queue import RECORD, LockedPopulation
from lgbench.execution.workers import Setup
from lgbench.extensions.loading import parted
from lgbench.results import run_files, weights_files
from lgbench.results.weights_files import KeptWeights, kept_by

LOOK_SECONDS = 0.1
"""Time between two looks at submitted jobs."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job. Exceptions of plugins may be impossible to pickle, so an error is a sentence."""

    files: Mapping[str, bytes]
    """Contents of run files and weights by name."""
    said: Sequence[str] = ()
    """Sentences for the user."""
    error: str | None = None
    memory: bool = False
    """Whether memory did not suffice."""


@dataclass(frozen=True)
class Job:
    """A function that trains and tests a population on another machine, as plain data."""

    population: PlannedPopulation
    device: str
    checkpoint: float
    keep_weights: bool
    folder: str
    """Folder of the checkpoint, which other machines may not see."""
    plugins: tuple[tuple[str, bytes], ...]
    """Names and contents of plugin files."""
    trackers: Mapping[str, str]
    """Plugins of the trackers that follow the runs, by tracker."""

    def __call__(self) -> Outcome:
        """Raises no exception."""
        display = _Said()
        try:
            return Outcome(self._made(display), display.sentences)
        except Exception as error:  # a plugin's model may raise anything
            return Outcome({}, display.sentences, located(error), memory=out_of_memory(error))

    def _made(self, display: ProgressDisplay) -> dict[str, bytes]:
        own = Path(self.folder)
        shared = (own / RECORD).exists()
        execution = Execution(choose_device(self.device), checkpoint=self.checkpoint, keep_weights=self.keep_weights)
        with tempfile.TemporaryDirectory(prefix="lgbench-", dir=own if shared else None) as name:
            folder, checkpoints = Path(name, "runs"), own if shared else Path(name)
            folder.mkdir()
            plugins = [Path(name) / file for file, _ in self.plugins]
            for path, (_, content) in zip(plugins, self.plugins, strict=True):
                parted(path)[0].write_bytes(content)
            return made_in(Setup(folder, execution, tuple(plugins), self.trackers), checkpoints, self.population, display)


class _Said(SilentProgress):
    """Display that keeps the sentences for the command."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


@dataclass(frozen=True)
class JobSettings:
    """Settings that all jobs of a command share."""

    execution: Execution
    plugins: Sequence[Path]
    """Plugin files."""
    trackers: Mapping[str, str]
    """Plugins of the trackers that follow the runs, by tracker."""


class Jobs:
    """Runs populations as jobs, as many at the same time as the pool has workers."""

    def __init__(self, pool: Pool, settings: JobSettings, runs: int, display: ProgressDisplay) -> None:
        """runs: number of runs of the whole plan, for the display."""
        self.pool, self.runs, self.display = pool, runs, display
        self._settings = settings
        self._plugins = tuple((path.name, parted(path)[0].read_bytes()) for path in settings.plugins)
        self._running: list[tuple[Submitted, LockedPopulation]] = []
        self._written = 0

    def run(self, left: Iterable[LockedPopulation | None], run_population: RunPopulation) -> Iterator[Done]:
        """`run_population` is not used: each job has its own."""
        try:
            yield from self._run(left)
        finally:
            self._cancel()

    def _run(self, left: Iterable[LockedPopulation | None]) -> Iterator[Done]:
        source: Iterator[LockedPopulation | None] | None = iter(left)
        look_again = 0.0
        while True:
            while source and len(self._running) < self.pool.workers and time.monotonic() >= look_again:
                match next(source, _END):
                    case LockedPopulation() as locked:
                        self._running.append((self._submitted(locked), locked))
                    case None:
                        look_again = time.monotonic() + WAIT_SECONDS
                    case _:
                        source = None
            if not source and not self._running:
                return
            time.sleep(LOOK_SECONDS)
            for submitted, locked in [each for each in self._running if each[0].done()]:
                self._running.remove((submitted, locked))
                yield self._ended(locked, _outcome(submitted))
                source = source or iter(left)  # its runs may be left to be tried again

    def _submitted(self, locked: LockedPopulation) -> Submitted:
        """Raises the error of an engine that takes no job, after the population was given back."""
        try:
            return self.pool.submit(self._job(locked))
        except Exception:
            with locked:
                raise

    def _job(self, locked: LockedPopulation) -> Job:
        execution, folder = self._settings.execution, str(locked.folder.resolve())
        device, trackers = execution.device.type, self._settings.trackers
        return Job(locked.planned, device, execution.checkpoint, execution.keep_weights, folder, self._plugins, trackers)

    def _ended(self, locked: LockedPopulation, outcome: Outcome) -> Done:
        """Write the files of a job, and end its population."""
        for sentence in outcome.said:
            self.display.say(sentence)
        written: list[Path] = []
        error: Exception | None = None
        try:
            written = filed(locked, outcome.files, self.display)
        except Exception as raised:  # the disk may be full
            error = raised
        if outcome.error is not None:
            kind = WorkerKilled if outcome.memory else WorkerError
            error = error or kind(outcome.error)
        if not error:
            self._written += len(written)
            self.display.say(f"{locked.planned.title}: done, {self._written} runs written of {self.runs}")
        return ended(locked, written, error)

    def _cancel(self) -> None:
        """Cancel the jobs that still run, and give back their populations as after an interrupt."""
        for submitted, locked in self._running:
            with suppress(Exception):  # the engine may be gone
                submitted.cancel()
            with suppress(KeyboardInterrupt), locked:
                raise KeyboardInterrupt
        self._running.clear()


_END = object()


def _outcome(submitted: Submitted) -> Outcome:
    """Outcome of a job that has ended. An engine that loses a job has most often run out of memory."""
    try:
        outcome: Outcome = submitted.result()
    except Exception as error:  # each engine has exceptions of its own
        return Outcome({}, error=f"the job was lost: {first_line(error)}", memory=True)
    return outcome


def filed(locked: LockedPopulation, files: Mapping[str, bytes], display: ProgressDisplay) -> list[Path]:
    """Paths of the run files that were written, each once and whole, with the kept weights.

    Raises RunFailed for a damaged file.
    """
    results, written = locked.results, []
    locked.folder.mkdir(parents=True, exist_ok=True)  # gone if another process took over and has ended
    for experiment in locked.experiments:
        path = path_of(experiment, results)
        if run_files.is_run(path, experiment.run_id) or path.name not in files:
            continue
        if said := run_files.make_room(path, experiment.run_id):
            display.say(said)
        with created(path, locked.folder) as partial:
            partial.write_bytes(files[path.name])
            if not run_files.is_run(partial, experiment.run_id):
                raise RunFailed(f"{path.name} came back damaged")
            if own := kept_by(run_files.metadata(partial)):
                name = weights_files.name_for(experiment.record, own)
                if KeptWeights.of(files.get(name, b"")) != own:
                    raise RunFailed(f"{name} came back damaged")
                weights_files.write(results / name, files[name], locked.folder)
        written.append(path)
    return written
