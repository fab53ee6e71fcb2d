"""Training and testing of populations: a plan becomes populations, populations become scores, scores become run files."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from lgbench.contracts import Facts
from lgbench.execution.device import Execution, environment, full_float32, keep_freed_memory, threads
from lgbench.execution.progress import Phase, ProgressDisplay
from lgbench.execution.tracking import Following, Tracking
from lgbench.execution.work_queue import CHECKPOINT, PlannedPopulation, path_of
from lgbench.experiment.contexts import point_steps
from lgbench.experiment.experiment import Experiment, Tested
from lgbench.experiment.record import LoadedPlugin
from lgbench.extensions.loading import Distribution
from lgbench.measurement.evaluate import chance, evaluate, evaluate_point
from lgbench.measurement.probing import probe
from lgbench.measurement.scores import Score, reasons
from lgbench.results import run_files, weights_files
from lgbench.results.metrics import descriptions
from lgbench.results.rows import rows_of
from lgbench.results.weights_files import KeptWeights
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.models import Models, Trained, kept
from lgbench.training.train import Points, train


def points_of(population: Sequence[Experiment], device: torch.device) -> Points:
    """Tests of a population during training: all measurements of each model at the steps of its protocol."""

    def measure(now: Models) -> list[list[Score]]:
        return [evaluate_point(experiment, now.models(index), device) for index, experiment in enumerate(population)]

    first = population[0]  # the settings are equal in a population
    return Points(frozenset(point_steps(first.train, first.evaluate)), measure)


def scores_at_points(trained: Trained, index: int) -> Mapping[int, Sequence[Score]]:
    """Scores of one model during training, by step, as measured by :func:`points_of`."""
    return {step: [Score(*score) for score in found[index]] for step, found in trained.measured.items()}


@dataclass
class PopulationRunner:
    """Training and testing of populations in this process, up to the run files."""

    execution: Execution
    folder: Path
    display: ProgressDisplay
    loaded: Sequence[Distribution] = ()
    """All loaded distributions of plugins."""
    tracking: Tracking | None = None
    _environment: dict[str, Any] = field(default_factory=dict)
    _chance: dict[Hashable, list[Score]] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    """Sentences already shown. A sentence about all seeds of an entry is shown once."""

    def run(self, planned: PlannedPopulation, experiments: Sequence[Experiment], folder: Path) -> Iterator[Path]:
        """Train all models together, test one by one, and yield each run file when written.

        The checkpoint is in `folder`. A CPU trains with one thread: for small operators, a second thread costs time.
        """
        assert not any(experiment.record.is_untuned for experiment in experiments)
        for distribution in self.loaded:
            distribution.source  # noqa: B018  # read before the training, since the files may be edited during it
        keep_freed_memory()
        one_thread = threads(1) if self.execution.device.type == "cpu" else nullcontext()
        tracking = self.tracking.following(experiments, folder) if self.tracking else nullcontext()
        with tracking as following, full_float32(), one_thread:
            trained = self._trained(planned, experiments, folder, following)
            with self.display.phase(Phase.evaluate(planned.title, experiments)) as report:
                for index, experiment in enumerate(experiments):
                    started = time.monotonic()
                    path = path_of(experiment, self.folder)
                    if not run_files.is_run(path, experiment.run_id):  # a killed process may have written some of the runs
                        rows = self._rows(experiment, trained, index)
                        weights = kept(trained, index, experiment.record) if self.execution.keep_weights else None
                        seconds = {"train": trained.seconds, "total": trained.seconds + time.monotonic() - started}
                        footer = self._footer(experiment, trained) | {"seconds": seconds}
                        self._write(path, experiment, rows, footer, weights, folder)
                        yield path
                    if following:
                        following.finished(index, path)
                    report(index + 1, None)

    def _trained(
        self, planned: PlannedPopulation, population: Sequence[Experiment], folder: Path, following: Following | None
    ) -> Trained:
        device = self.execution.device
        checkpoint = Checkpoint(folder / CHECKPOINT, self.execution.checkpoint)
        with self.display.phase(Phase.train(planned.title, population)) as report:
            trained = train(
                population,
                device,
                report,
                points=points_of(population, device),
                follower=following,
                compile=planned.compile,
                models=planned.models,
                checkpoint=checkpoint,
                say=self.display.say,
            )
        diverged = dict(zip(population, trained.diverged, strict=True))  # a rerun fills its population with copies
        for experiment, step in diverged.items():
            if step:
                self.display.say(f"{experiment.record.title}: diverged at step {step}")
        return trained

    def _rows(self, experiment: Experiment, trained: Trained, index: int) -> pa.Table:
        device = self.execution.device
        scores = evaluate(experiment, trained.models(index), device)
        for reason in reasons(scores, trained.diverged[index] is not None):
            self.display.say(f"{experiment.record.title}: {reason}, so boards do not rank it")
        probed = probe(experiment, lambda model: trained.on(model).models(index), device)
        for sentence in probed.sentences:
            if sentence not in self._said:
                self._said.add(sentence)
                self.display.say(sentence)
        scores += [*probed.scores, *self._chance_of(experiment)]
        by_step = {experiment.train.steps: scores, **scores_at_points(trained, index)}
        return rows_of(experiment, by_step, trained.curve, index, trained.diverged[index])

    def _write(
        self,
        path: Path,
        experiment: Experiment,
        rows: pa.Table,
        footer: dict[str, Any],
        weights: bytes | None,
        scratch: Path,
    ) -> None:
        """Write the files of a run: first the weights, if kept, then the run file with the name of the weights."""
        if said := run_files.make_room(path, experiment.run_id):
            self.display.say(said)
        try:
            if weights is not None:
                own = KeptWeights.of(weights)
                weights_files.write(own.beside(path), weights, scratch)
                footer = footer | own.field
            run_files.write(path, rows, footer, scratch)
        except FileNotFoundError:  # another process took over, has written all runs, and has removed `scratch`
            if not run_files.is_run(path, experiment.run_id):
                raise

    def _chance_of(self, experiment: Experiment) -> list[Score]:
        """Chance level of an experiment's task, computed once for all seeds and entries."""
        key = (experiment.record.task, experiment.train.min_length, experiment.train.max_length, experiment.evaluate)
        if key not in self._chance:
            self._chance[key] = chance(experiment.task, experiment.measurements, experiment.train, experiment.evaluate)
        return self._chance[key]

    def _footer(self, experiment: Experiment, trained: Trained) -> dict[str, Any]:
        self._environment = self._environment or environment(self.execution.device)
        took_part = experiment.plugins.keys() | experiment.measured_by.keys()
        execution = {"population": trained.stack, "compiled": trained.compiled, "resumed": trained.resumed}
        return footer_of(experiment, took_part, self.loaded, execution, self._environment)


def footer_of(
    tested: Tested,
    took_part: Collection[str],
    loaded: Sequence[Distribution],
    execution: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """Metadata of a run without its seconds; `took_part` has the names of all loaded distributions that took part."""
    plugins = [
        LoadedPlugin(each.name, each.version, each.source, each.installed, each.origin, each.name in took_part, each.libraries)
        for each in loaded
    ]
    return {
        "experiment": asdict(tested.record),
        "plugins": [plugin.content for plugin in plugins],
        "measurements": descriptions(tested.measurements),
        "execution": execution,
        "environment": environment,
        **Facts.field(tested.task),
    }
