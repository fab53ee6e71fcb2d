"""One planned population, trained wherever this is called: on another machine, by an engine that lgbench need not know."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from lgbench.errors import UsageError
from lgbench.execution import provenance
from lgbench.execution.device import Execution, choose_device
from lgbench.execution.executor import WAIT_SECONDS
from lgbench.execution.lease import Held, LeaseLost
from lgbench.execution.populations import PlannedPopulation
from lgbench.execution.progress import ProgressDisplay, SilentProgress
from lgbench.execution.runner import PopulationRunner
from lgbench.execution.scheduler import Assignment, path_of
from lgbench.execution.tuning import FOLDER
from lgbench.execution.work_queue import WorkQueue, by_id, unfinished
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.replan import Replanner
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry
from lgbench.results import weights_files


@dataclass(frozen=True)
class Private:
    """A folder that no other process knows."""

    folder: Path

    @property
    def lost(self) -> bool:
        return False

    def require(self) -> None:
        pass


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
    `keep_weights`, the runs keep their weights, whose files come beside the run files; tuning runs keep none. A process may run
    one population at a time, with one thread on a CPU.

    Raises UsageError where the plugins of this machine would make other runs, and whatever stops the training.
    """
    keeps = keep_weights and not population.tuning
    execution = Execution(choose_device(device), checkpoint=checkpoint, keep_weights=keeps)
    if results is None:
        with tempfile.TemporaryDirectory(prefix="lgbench-") as scratch:
            files = made_in(Path(scratch), Private(Path(scratch)), population, plugins, execution)
    else:
        folder = Path(results) / FOLDER if population.tuning else Path(results)
        folder.mkdir(parents=True, exist_ok=True)
        files = _contents(folder, _made_together(folder, experiments_of(population, plugins), population, plugins, execution))
    return {f"{FOLDER}/{name}" if population.tuning else name: content for name, content in files.items()}


def _made_together(
    folder: Path,
    experiments: Sequence[Experiment],
    population: PlannedPopulation,
    plugins: Sequence[str | Path],
    execution: Execution,
) -> list[str]:
    """Train a population in a results folder, in which other processes may be making some of its runs. Returns their names."""
    queue = WorkQueue(folder, experiments)
    runner = PopulationRunner(execution, folder, SilentProgress(), loaded(plugins))
    made_by = partial(provenance.made_by, device=execution.device)
    while left := unfinished(experiments, folder):
        if claim := queue.take(by_id(left), population.models, made_by):
            with suppress(LeaseLost), claim:  # then another process is making them
                for _ in runner.run(Assignment(claim.experiments, claim.lease, claim.models, population.compile)):
                    pass
        else:
            time.sleep(WAIT_SECONDS)
    return [path_of(experiment, folder).name for experiment in experiments]


def _contents(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Run files of a folder, and the weights of those that kept them and have them there."""
    files = {name: (folder / name).read_bytes() for name in names}
    kept = [name for run in files if (name := weights_files.name_beside(folder / run)) and (folder / name).exists()]
    return files | {name: (folder / name).read_bytes() for name in kept}


def made_in(
    folder: Path,
    held: Held,
    population: PlannedPopulation,
    plugins: Sequence[str | Path],
    execution: Execution,
    display: ProgressDisplay | None = None,
) -> dict[str, bytes]:
    """Train a population in an empty folder, with its checkpoints in a folder that is held, on the same disk."""
    runner = PopulationRunner(execution, folder, display or SilentProgress(), loaded(plugins))
    assignment = Assignment(experiments_of(population, plugins), held, population.models, population.compile)
    return _contents(folder, [path.name for path in runner.run(assignment)])


def experiments_of(population: PlannedPopulation, plugins: Sequence[str | Path] = ()) -> list[Experiment]:
    """The experiments that the records of a population describe here. Raises UsageError where one would be another run."""
    replanner = _replanner(_resolved(plugins))
    experiments = [replanner.experiment(record, population.probes) for record in population.runs]
    for experiment, record in zip(experiments, population.runs, strict=True):
        if experiment.run_id != record.run_id:
            raise UsageError(
                f"{record.title} would be another run here than where it was planned: install the same lgbench and plugins"
            )
    return experiments


def loaded(plugins: Sequence[str | Path] = ()) -> tuple[Distribution, ...]:
    """Every distribution of plugins that is loaded here."""
    return _replanner(_resolved(plugins)).registry.loaded()


def _resolved(plugins: Sequence[str | Path]) -> tuple[Path, ...]:
    return tuple(Path(path).resolve() for path in plugins)


@cache
def _replanner(plugins: tuple[Path, ...]) -> Replanner:
    """Plugins are loaded once in a process."""
    return Replanner(Registry.load(files=plugins))
