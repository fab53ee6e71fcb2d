"""The flow: a request becomes populations, populations become scores, scores become run files."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lgbench import runfiles
from lgbench.errors import RunFailed, UsageError
from lgbench.evaluate import Score, evaluate
from lgbench.experiment import Experiment, Plan, Request, plan
from lgbench.registry import Registry
from lgbench.running import grid, provenance
from lgbench.running.execution import Execution, choose_device, full_float32
from lgbench.running.watcher import Silent, Watcher
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.train import Trained, train


@dataclass(frozen=True)
class Outcome:
    """The files of all experiments, written here or found when this was done, and what failed."""

    written: list[Path]
    found: list[Path]
    failed: list[RunFailed]


def run(
    task: str | Sequence[str],
    arch: str | Sequence[str],
    *,
    average: str | Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    protocol: str = "standard",
    set: Mapping[str, Any] | None = None,
    device: str = "auto",
    compile: bool | None = None,
    population: int | None = None,
    results: str | Path = "results",
) -> pa.Table:
    """Train and test every task with every entry and seed, as `lgbench run` does, and return the rows of all runs.

    A run that is already in `results` is read, not repeated. `average=None` evaluates every installed averager; a list as a
    value of `set` makes a grid over it. Raises UsageError for unknown names and values out of range, before anything is
    trained, and RunFailed, with its cause, where training or testing broke.
    """
    registry = Registry.load()
    changes = {key: ",".join(str(v) for v in _listed(value)) for key, value in (set or {}).items()}
    averagers = None if average is None else _listed(average)
    request = Request(_listed(task), _listed(arch), averagers, tuple(seeds), protocol, changes)
    execution = Execution(choose_device(device), compile, population)
    outcome = run_plan(plan(request, registry), registry, execution, Path(results), Silent())
    if outcome.failed:
        raise outcome.failed[0]
    return pa.concat_tables([runfiles.read(path) for path in outcome.found + outcome.written])


def run_plan(plan: Plan, registry: Registry, execution: Execution, folder: Path, watcher: Watcher) -> Outcome:
    """Run what is not yet in `folder`, a population at a time; one that fails does not stop the others.

    Other processes may do the same at the same time; this comes back when every run is there or failed here. Raises
    UsageError where nothing can be written to `folder`, before anything is trained.
    """
    _check_writable(folder)
    environment = provenance.environment(execution.device)
    written: list[Path] = []
    failed: list[RunFailed] = []

    def fail(population: Sequence[Experiment], error: Exception) -> None:
        failure = RunFailed(f"{_title(population)} failed: {_located(error)}")
        failure.__cause__ = error
        failed.append(failure)

    for work in grid.populations(plan.experiments, registry, folder, execution, watcher, fail):
        try:
            with work.claim, full_float32():
                for experiment, table, about in _run_population(work, registry, execution, folder, watcher):
                    path = grid.path_of(experiment, folder)
                    runfiles.write(path, table, about | {"environment": environment}, scratch=work.claim.folder)
                    written.append(path)
        except Exception as error:  # a plugin's model may raise anything
            fail(work.claim.experiments, error)
    everything = [grid.path_of(experiment, folder) for experiment in plan.experiments]
    mine = frozenset(written)
    return Outcome(written, [path for path in everything if path not in mine and path.exists()], failed)


def _run_population(
    work: grid.Work, registry: Registry, execution: Execution, folder: Path, watcher: Watcher
) -> Iterator[tuple[Experiment, pa.Table, dict[str, Any]]]:
    """Train all together, then evaluate one by one: rows and footer of each run as soon as it is whole."""
    population, device = work.claim.experiments, execution.device
    checkpoint = Checkpoint(work.claim.checkpoint, execution.checkpoint)
    with watcher.phase(f"train {_title(population)}", population[0].train.steps) as report:
        trained = train(population, registry, device, report, compile=work.compile, checkpoint=checkpoint, say=watcher.say)
    how = {"population": len(population), "compiled": trained.compiled, "resumed": trained.resumed}
    started = time.monotonic()
    with watcher.phase(f"evaluate {_title(population)}", len(population)) as report:
        for index, experiment in enumerate(population):
            if trained.diverged[index]:
                name = f"{experiment.task} {experiment.entry} seed {experiment.seed}"
                watcher.say(f"{name}: diverged at step {trained.diverged[index]}")
            if not grid.path_of(experiment, folder).exists():  # a killed process may have come as far as some of the runs
                models = {variant: trained.model(variant, index) for variant in trained.weights}
                task = registry.tasks[experiment.task]
                scores = evaluate(task, models, experiment.train, experiment.evaluate, experiment.seed, device)
                about = {
                    "experiment": asdict(experiment),
                    "plugins": provenance.plugins_of(experiment, registry),
                    "execution": how,
                    "seconds": {"train": trained.seconds, "total": trained.seconds + time.monotonic() - started},
                }
                yield experiment, _table(experiment, trained, index, scores), about
            report(index + 1, None)


def _title(population: Sequence[Experiment]) -> str:
    tasks = list(dict.fromkeys(e.task for e in population))
    names = tasks[0] if len(tasks) == 1 else f"{tasks[0]} .. {tasks[-1]}"
    models = "1 model" if len(population) == 1 else f"{len(population)} models"
    return f"{names} {population[0].entry} ({models})"


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"cannot write to the results folder {str(folder)!r}: {error.strerror}") from error


def _located(error: Exception) -> str:
    """An error with the place that raised it, which is what a plugin's author looks for."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def _table(experiment: Experiment, trained: Trained, index: int, scores: Sequence[Score]) -> pa.Table:
    low, high = experiment.train.min_length, experiment.train.max_length
    rows: list[dict[str, Any]] = [
        {
            "weights": score.weights,
            "metric": score.metric,
            "step": experiment.train.steps,
            "length": score.length,
            "value": score.value,
            "n": score.n,
            "in_training_range": low <= score.length <= high,
        }
        for score in scores
    ]
    covered = 0
    for point, step in enumerate(trained.curve.steps):
        for metric, values in (("train_loss", trained.curve.loss), ("gradient_norm", trained.curve.gradient_norm)):
            value = values[point, index].item()
            rows.append({"weights": "raw", "metric": metric, "step": step, "value": value, "n": step - covered})
        covered = step
    same = {
        "run_id": experiment.run_id,
        "entry": experiment.entry,
        "task": experiment.task,
        "family": experiment.family,
        "task_version": experiment.task_version,
        "protocol": experiment.protocol,
        "seed": experiment.seed,
        "diverged_step": trained.diverged[index],
    }
    return pa.Table.from_pylist([same | row for row in rows], schema=runfiles.SCHEMA)


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
