"""Populations on other machines: by a function call anywhere, or as jobs of an executor's engine.

The command holds the locks and writes the run files. Run files come back as bytes, so machines need no common folder. A machine
with access to the results folder keeps checkpoints there, so a restarted job continues its training.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lgbench.atomic_files import created
from lgbench.contracts.services import Pool, Submitted
from lgbench.errors import RunFailed, WorkerError, WorkerKilled, first_line, lacks_memory, located
from lgbench.execution.device import Execution, choose_device
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.work_queue import (
    RECORD,
    WAIT_SECONDS,
    Dispatcher,
    Done,
    LockedPopulation,
    PlannedPopulation,
    WorkQueue,
    path_of,
    released,
    unfinished,
)
from lgbench.execution.workers import Setup, trained_alone
from lgbench.experiment.components import experiments_of
from lgbench.extensions.loading import parted
from lgbench.extensions.registry import Registry
from lgbench.results import run_files, weights_files
from lgbench.results.weights_files import KeptWeights, kept_by


def run_population(
    population: PlannedPopulation,
    *,
    plugins: Sequence[str | Path] = (),
    device: str = "auto",
    checkpoint: float = 60.0,
    results: str | Path | None = None,
    keep_weights: bool = False,
) -> dict[str, bytes]:
    """Train and test a population of :func:`lgbench.plan`. Returns run files by path relative to the results folder.

    Works on any machine with the same plugins, leaves no file behind, and saves no checkpoint. Training is in a worker
    process, with one thread on a CPU. With `keep_weights`, the result includes the weights files; tuning runs keep no weights.

    With a folder `results`, perhaps shared by several machines, the files are also written to the folder. Finished runs are
    not trained again, runs in training by other processes are waited for, and a killed training continues from its checkpoint.

    Raises UsageError if the plugins of this machine would make other runs, and any error of the training.
    """
    keeps = keep_weights and not population.tuning
    execution = Execution(choose_device(device), checkpoint=checkpoint, keep_weights=keeps)
    if results is None:
        with tempfile.TemporaryDirectory(prefix="lgbench-") as scratch:
            setup = Setup(Path(scratch), execution, _resolved(plugins), {})
            files = made_in(setup, Path(scratch), population, ProgressDisplay())
    else:
        folder = Path(results) / run_files.TUNING if population.tuning else Path(results)
        folder.mkdir(parents=True, exist_ok=True)
        files = _contents(folder, _made_together(folder, population, plugins, execution))
    return {f"{run_files.TUNING}/{name}" if population.tuning else name: content for name, content in files.items()}


def _made_together(
    folder: Path, population: PlannedPopulation, plugins: Sequence[str | Path], execution: Execution
) -> list[str]:
    """Names of a population's run files, after training in a results folder shared with other processes."""
    registry = Registry.load(files=_resolved(plugins), only=population.plugins)
    experiments = list(experiments_of(population.runs, population.measurements, registry))
    queue, setup = WorkQueue(folder, experiments, execution.device), Setup(folder, execution, _resolved(plugins), {})
    while left := {experiment.run_id: experiment for experiment in unfinished(experiments, folder)}:
        if locked := queue.take(left, population.models, population.compile):
            with locked:
                trained_alone(locked.planned, locked.folder, setup, ProgressDisplay())
        else:
            time.sleep(WAIT_SECONDS)
    return [path_of(experiment, folder).name for experiment in experiments]


def _contents(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Contents of run files by name, with the kept weights found in the same folder."""
    files = {name: (folder / name).read_bytes() for name in names}
    kept = [path for name in names if (path := weights_files.beside(folder / name)) and path.exists()]
    return files | {path.name: path.read_bytes() for path in kept}


def made_in(setup: Setup, checkpoints: Path, population: PlannedPopulation, display: ProgressDisplay) -> dict[str, bytes]:
    """Contents of a population's files, after training in the empty folder of `setup`.

    `checkpoints`: folder of the checkpoint, on the same disk.
    """
    return _contents(setup.results, [path.name for path in trained_alone(population, checkpoints, setup, display)])


def _resolved(plugins: Sequence[str | Path]) -> tuple[Path, ...]:
    return tuple(Path(path).resolve() for path in plugins)


LOOK_SECONDS = 0.1
"""Time between two checks of submitted jobs."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job. An error is a sentence, since exceptions of plugins may not be picklable."""

    files: Mapping[str, bytes]
    """Contents of run files and weights by name."""
    said: Sequence[str] = ()
    """Sentences for the user."""
    error: str | None = None
    memory: bool = False
    """Whether the error is a lack of memory."""


@dataclass(frozen=True)
class Job:
    """Picklable function for training and testing a population on another machine."""

    population: PlannedPopulation
    execution: Execution
    folder: str
    """Folder of the checkpoint, perhaps invisible to other machines."""
    plugins: tuple[tuple[str, bytes], ...]
    """Names and contents of plugin files."""
    trackers: Mapping[str, str]
    """Plugin of each tracker of the runs, by tracker."""

    def __call__(self) -> Outcome:
        """Raises no exception."""
        display = _Said()
        try:
            return Outcome(self._made(display), display.sentences)
        except Exception as error:  # a plugin's model may raise anything
            return Outcome({}, display.sentences, located(error), memory=lacks_memory(error))

    def _made(self, display: ProgressDisplay) -> dict[str, bytes]:
        own = Path(self.folder)
        shared = (own / RECORD).exists()
        # Another machine has devices of its own, and a job is one worker.
        execution = replace(self.execution, device=choose_device(self.execution.device.type), workers=1)
        with tempfile.TemporaryDirectory(prefix="lgbench-", dir=own if shared else None) as scratch:
            folder, checkpoints = Path(scratch, "runs"), own if shared else Path(scratch)
            folder.mkdir()
            plugins = [Path(scratch) / file for file, _ in self.plugins]
            for path, (_, content) in zip(plugins, self.plugins, strict=True):
                parted(path)[0].write_bytes(content)
            return made_in(Setup(folder, execution, tuple(plugins), self.trackers), checkpoints, self.population, display)


class _Said(ProgressDisplay):
    """Display that keeps the sentences for the command."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


class Jobs(Dispatcher):
    """Dispatcher for jobs on an engine, at most one per worker of the pool at the same time."""

    def __init__(self, pool: Pool, setup: Setup, runs: int, display: ProgressDisplay) -> None:
        """runs: number of runs of the whole plan, for the display."""
        self.pool, self.most, self.runs, self.display = pool, pool.workers, runs, display
        self._setup = setup
        self._plugins = tuple((path.name, parted(path)[0].read_bytes()) for path in setup.files)
        self._running: list[tuple[Submitted, LockedPopulation]] = []
        self._written = 0

    @property
    def busy(self) -> int:
        return len(self._running)

    def begin(self, locked: LockedPopulation) -> None:
        """Submit a population. If the engine raises an error, release the population and raise the error."""
        try:
            self._running.append((self.pool.submit(self._job(locked)), locked))
        except Exception as error:  # whatever the engine raises, the lock is given back, and the error goes on
            locked.release(error)
            raise

    def ended(self, seconds: float | None) -> Iterator[Done]:
        time.sleep(LOOK_SECONDS)
        for submitted, locked in [each for each in self._running if each[0].done()]:
            self._running.remove((submitted, locked))
            yield self._ended(locked, _outcome(submitted))

    def stop(self) -> None:
        for submitted, locked in self._running:
            with suppress(Exception):  # the engine may be gone
                submitted.cancel()
            locked.release(KeyboardInterrupt())
        self._running.clear()

    def _job(self, locked: LockedPopulation) -> Job:
        folder = str(locked.folder.resolve())
        return Job(locked.planned, self._setup.execution, folder, self._plugins, self._setup.trackers)

    def _ended(self, locked: LockedPopulation, outcome: Outcome) -> Done:
        """Write the files of a job, and release its population."""
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
        return released(locked, written, error)


def _outcome(submitted: Submitted) -> Outcome:
    """Outcome of an ended job. A lost job counts as a lack of memory, the most frequent reason."""
    try:
        outcome: Outcome = submitted.result()
    except Exception as error:  # each engine has exceptions of its own
        return Outcome({}, error=f"the job was lost: {first_line(error)}", memory=True)
    return outcome


def filed(locked: LockedPopulation, files: Mapping[str, bytes], display: ProgressDisplay) -> list[Path]:
    """Write run files, each once and whole, with the kept weights. Returns the paths of new run files.

    Raises RunFailed for a damaged file.
    """
    results, written = locked.results, []
    locked.folder.mkdir(parents=True, exist_ok=True)  # removed if another process took over and has ended
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
                beside = own.beside(path)
                if KeptWeights.of(files.get(beside.name, b"")) != own:
                    raise RunFailed(f"{beside.name} came back damaged")
                weights_files.write(beside, files[beside.name], locked.folder)
        written.append(path)
    return written
