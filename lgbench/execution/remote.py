"""One planned population, trained wherever this is called: on another machine, by an engine that lgbench need not know."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lgbench.execution.device import Execution, choose_device
from lgbench.execution.executor import WAIT_SECONDS
from lgbench.execution.populations import PlannedPopulation
from lgbench.execution.progress import ProgressDisplay, SilentProgress
from lgbench.execution.scheduler import path_of
from lgbench.execution.tuning import FOLDER
from lgbench.execution.work_queue import WorkQueue, unfinished
from lgbench.execution.workers import Setup, trained_alone
from lgbench.experiment.components import experiments_of
from lgbench.extensions.registry import Registry
from lgbench.results import weights_files


def run_population(
    population: PlannedPopulation,
    *,
    plugins: Sequence[str | Path] = (),
    device: str = "auto",
    checkpoint: float = 60.0,
    results: str | Path | None = None,
    keep_weights: bool = False,
) -> dict[str, bytes]:
    """Train and test a population of :func:`lgbench.plan`, and return its run files by their paths in the results folder.

    Any machine that has the same plugins can do it. Nothing is left on this machine, and nothing outlives a kill. With a folder
    `results`, which machines may share, the files are written there, too: runs that it has are not made again, runs that
    another process makes are waited for, and a training that was killed goes on from its checkpoint. With
    `keep_weights`, the runs keep their weights, whose files come beside the run files; tuning runs keep none. Training is in a
    worker process, with one thread on a CPU.

    Raises UsageError where the plugins of this machine would make other runs, and whatever stops the training.
    """
    keeps = keep_weights and not population.tuning
    execution = Execution(choose_device(device), checkpoint=checkpoint, keep_weights=keeps)
    if results is None:
        with tempfile.TemporaryDirectory(prefix="lgbench-") as scratch:
            setup = Setup(Path(scratch), execution, _resolved(plugins), {})
            files = made_in(setup, Path(scratch), population, SilentProgress())
    else:
        folder = Path(results) / FOLDER if population.tuning else Path(results)
        folder.mkdir(parents=True, exist_ok=True)
        files = _contents(folder, _made_together(folder, population, plugins, execution))
    return {f"{FOLDER}/{name}" if population.tuning else name: content for name, content in files.items()}


def _made_together(
    folder: Path, population: PlannedPopulation, plugins: Sequence[str | Path], execution: Execution
) -> list[str]:
    """Train a population in a results folder, in which other processes may be making some of its runs. Returns their names."""
    registry = Registry.load(files=_resolved(plugins), only=population.plugins)
    experiments = list(experiments_of(population.runs, population.measurements, registry))
    queue, setup = WorkQueue(folder, experiments, execution.device), Setup(folder, execution, _resolved(plugins), {})
    while left := {experiment.run_id: experiment for experiment in unfinished(experiments, folder)}:
        if locked := queue.take(left, population.models, population.compile):
            with locked:
                trained_alone(locked.planned, locked.folder, setup, SilentProgress())
        else:
            time.sleep(WAIT_SECONDS)
    return [path_of(experiment, folder).name for experiment in experiments]


def _contents(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Run files of a folder, and the weights of those that kept them and have them there."""
    files = {name: (folder / name).read_bytes() for name in names}
    kept = [name for run in files if (name := weights_files.name_beside(folder / run)) and (folder / name).exists()]
    return files | {name: (folder / name).read_bytes() for name in kept}


def made_in(setup: Setup, checkpoints: Path, population: PlannedPopulation, display: ProgressDisplay) -> dict[str, bytes]:
    """Train a population in an empty folder, with its checkpoint in another one on the same disk."""
    return _contents(setup.results, [path.name for path in trained_alone(population, checkpoints, setup, display)])


def _resolved(plugins: Sequence[str | Path]) -> tuple[Path, ...]:
    return tuple(Path(path).resolve() for path in plugins)
