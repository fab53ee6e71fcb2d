"""The flow: a request becomes populations, populations become scores, scores become run files."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import torch

from lgbench import provenance, runfiles
from lgbench.errors import RunFailed, UsageError
from lgbench.evaluate import Score, evaluate
from lgbench.experiment import Experiment, Plan, Request, plan
from lgbench.registry import Registry
from lgbench.train import Trained, population_key, train


class Watcher(Protocol):
    """Whoever wants to see a run's progress."""

    def say(self, sentence: str) -> None:
        """Something that the user should know."""

    def phase(self, title: str, total: int) -> AbstractContextManager[Callable[[int, Callable[[], float] | None], None]]:
        """A phase of `total` steps; inside, call with the steps done and, in training, a function for the loss."""


class Silent:
    """The watcher of a library call."""

    def say(self, sentence: str) -> None:
        pass

    def phase(self, title: str, total: int) -> AbstractContextManager[Callable[[int, Callable[[], float] | None], None]]:
        return nullcontext(lambda done, loss: None)


@dataclass(frozen=True)
class Outcome:
    """The file of each experiment, new or from before, and what failed."""

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
    results: str | Path = "results",
) -> pa.Table:
    """Train and test every task with every entry and seed, as `lgbench run` does, and return the rows of all runs.

    A run that is already in `results` is read, not repeated. `average=None` evaluates every installed averager.
    Raises UsageError for unknown names and values out of range, before anything is trained, and RunFailed, with its
    cause, where training or testing broke.
    """
    registry = Registry.load()
    changes = {key: str(value) for key, value in (set or {}).items()}
    request = Request(
        _listed(task), _listed(arch), None if average is None else _listed(average), tuple(seeds), protocol, changes
    )
    outcome = run_plan(plan(request, registry), registry, choose_device(device), Path(results), Silent())
    if outcome.failed:
        raise outcome.failed[0]
    return pa.concat_tables([runfiles.read(path) for path in outcome.found + outcome.written])


def choose_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one. Raises UsageError where the device is unknown or not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"device {name!r} cannot be used here; use auto, cpu, or cuda where there is a GPU") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device {name!r} is not supported; use auto, cpu or cuda")
    return device


def run_plan(plan: Plan, registry: Registry, device: torch.device, folder: Path, watcher: Watcher) -> Outcome:
    """Run what is not yet in `folder`, a population at a time; one that fails does not stop the others.

    Raises UsageError where nothing can be written to `folder`, before anything is trained.
    """
    _check_writable(folder)
    paths = {experiment: path_of(experiment, folder) for experiment in plan.experiments}
    todo = [experiment for experiment, path in paths.items() if not path.exists()]
    outcome = Outcome(written=[], found=[paths[e] for e in plan.experiments if e not in set(todo)], failed=[])
    environment = provenance.environment(device)
    for population in populations(todo, registry):
        try:
            for experiment, table, about in _run_population(population, registry, device, watcher):
                runfiles.write(paths[experiment], table, about | {"environment": environment})
                outcome.written.append(paths[experiment])
        except Exception as error:  # a plugin's model may raise anything
            failure = RunFailed(f"{_title(population)} failed: {_located(error)}")
            failure.__cause__ = error
            outcome.failed.append(failure)
    return outcome


def _run_population(
    population: Sequence[Experiment], registry: Registry, device: torch.device, watcher: Watcher
) -> Iterator[tuple[Experiment, pa.Table, dict[str, Any]]]:
    """Train all together, then evaluate one by one: rows and footer of each run as soon as it is whole."""
    started = time.monotonic()
    with watcher.phase(f"train {_title(population)}", population[0].train.steps) as report:
        trained = train(population, registry, device, report)
    seconds = {"train": time.monotonic() - started, "population": len(population)}
    with watcher.phase(f"evaluate {_title(population)}", len(population)) as report:
        for index, experiment in enumerate(population):
            if trained.diverged[index]:
                name = f"{experiment.task} {experiment.entry} seed {experiment.seed}"
                watcher.say(f"{name}: diverged at step {trained.diverged[index]}")
            models = {variant: trained.model(variant, index) for variant in trained.weights}
            task = registry.tasks[experiment.task]
            scores = evaluate(task, models, experiment.train, experiment.evaluate, experiment.seed, device)
            about = {
                "experiment": asdict(experiment),
                "plugins": provenance.plugins_of(experiment, registry),
                "seconds": seconds | {"total": time.monotonic() - started},
            }
            yield experiment, _table(experiment, trained, index, scores), about
            report(index + 1, None)


def populations(experiments: Sequence[Experiment], registry: Registry) -> list[list[Experiment]]:
    """Experiments that can be trained as one stack, together."""
    groups: dict[tuple[object, ...], list[Experiment]] = defaultdict(list)
    for experiment in experiments:
        groups[population_key(experiment, registry)].append(experiment)
    return list(groups.values())


def path_of(experiment: Experiment, folder: Path) -> Path:
    """Where an experiment's run file lives."""
    return runfiles.path_for(folder, experiment.task, experiment.entry, experiment.seed, experiment.run_id)


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


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
