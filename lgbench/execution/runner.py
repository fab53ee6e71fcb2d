"""Training and testing of populations: a plan becomes populations, populations become scores, scores become run files."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from lgbench.errors import RunFailed, first_line, lacks_memory
from lgbench.execution.device import Execution, as_in_runs, environment
from lgbench.execution.loggers import Following, Loggers
from lgbench.execution.progress import Phase, ProgressDisplay
from lgbench.execution.work_queue import CHECKPOINT, PlannedPopulation, path_of
from lgbench.experiment.contexts import eval_steps
from lgbench.experiment.experiment import Experiment, Tested
from lgbench.experiment.record import LoadedPlugin
from lgbench.experiment.tuning import TuningRun, coarse
from lgbench.extensions.loading import Distribution
from lgbench.measurement.evaluate import context_free_scores, evaluate, evaluate_at_eval_step
from lgbench.measurement.probing import probe
from lgbench.measurement.scores import Score, reasons
from lgbench.results import run_files
from lgbench.results.metrics import descriptions
from lgbench.results.rows import rows_of
from lgbench.results.run_files import SavedWeights
from lgbench.results.stored_runs import ExecutionRecord, Seconds
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.models import Models, Trained, saved
from lgbench.training.train import EvalSteps, train


def eval_steps_of(population: Sequence[Experiment], device: torch.device) -> EvalSteps:
    """Eval steps of a population, with all measurements of each model."""

    def measure(now: Models) -> list[list[Score]]:
        return [evaluate_at_eval_step(experiment, now.models(index), device) for index, experiment in enumerate(population)]

    first = population[0]  # the settings are equal in a population
    return EvalSteps(frozenset(eval_steps(first.train, first.evaluate)), measure)


def scores_at_eval_steps(trained: Trained, index: int) -> Mapping[int, Sequence[Score]]:
    """Scores of one model by eval step, as measured by :func:`eval_steps_of`."""
    # A checkpoint has lists in place of scores.
    return {step: [Score(*score) for score in found[index]] for step, found in trained.measured.items()}


@dataclass
class PopulationRunner:
    """Training and testing of populations in this process, up to the run files."""

    execution: Execution
    folder: Path
    display: ProgressDisplay
    loaded: Sequence[Distribution] = ()
    """All loaded distributions of plugins."""
    loggers: Loggers | None = None
    _context_free: dict[Hashable, list[Score]] = field(default_factory=dict)

    def run(self, planned: PlannedPopulation, experiments: Sequence[Experiment], folder: Path) -> Iterator[Path]:
        """Train all models together, test one by one, and yield each run file when written.

        The checkpoint is in `folder`.
        """
        assert all(each.record.tuning is None or each.record.tuning.chosen is not None for each in experiments)
        for distribution in self.loaded:
            distribution.source  # noqa: B018  # read before the training, since the files may be edited during it
        logged = self.loggers.following(experiments, folder) if self.loggers else nullcontext()
        with logged as following, as_in_runs(self.execution.device):
            trained = self._trained(planned, experiments, folder, following)
            with self.display.phase(Phase.evaluate(planned.title, experiments)) as report:
                for index, experiment in enumerate(experiments):
                    started = time.monotonic()
                    path = path_of(experiment, self.folder)
                    if not run_files.is_run(path, experiment.run_id):  # a killed process may have written some of the runs
                        rows = self._tested(experiment, trained, index)
                        weights = saved(trained, index, experiment.record) if self.execution.save_weights else None
                        about = self._metadata(experiment, trained, time.monotonic() - started)
                        self._write(path, experiment, rows, about, weights, folder)
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
                eval_steps=replace(eval_steps_of(population, device), follower=following),
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

    def _tested(self, experiment: Experiment, trained: Trained, index: int) -> pa.Table:
        """Rows of a run. Raises RunFailed for a lack of memory, since a smaller population tests models one by one, too."""
        try:
            return self._rows(experiment, trained, index)
        except Exception as error:
            if not lacks_memory(error):
                raise
            remedy = "free memory, and the same command goes on after the training; or lower evaluate.contexts"
            raise RunFailed(f"{first_line(error)}, in the test of {experiment.record.title}: {remedy}") from error

    def _rows(self, experiment: Experiment, trained: Trained, index: int) -> pa.Table:
        device = self.execution.device
        scores = evaluate(experiment, trained.models(index), device)
        for reason in reasons(scores, trained.diverged[index] is not None):
            self.display.say(f"{experiment.record.title}: {reason}, so boards do not rank it")
        probed = probe(experiment, lambda model: trained.on(model).models(index), device)
        for sentence in probed.sentences:
            self.display.say(sentence)
        scores += [*probed.scores, *self._context_free_of(experiment)]
        by_step = {experiment.train.steps: scores, **scores_at_eval_steps(trained, index)}
        return rows_of(experiment, by_step, trained.curve, index, trained.diverged[index])

    def _write(
        self,
        path: Path,
        experiment: Experiment,
        rows: pa.Table,
        about: dict[str, Any],
        weights: bytes | None,
        scratch: Path,
    ) -> None:
        """Write the files of a run: first the weights, if saved, then the run file with the name of the weights."""
        if said := run_files.make_room(path, experiment.run_id):
            self.display.say(said)
        try:
            if weights is not None:
                own = SavedWeights.of(weights)
                run_files.write_weights(own.beside(path), weights, scratch)
                about = about | own.field
            run_files.write(path, rows, about, scratch)
        except FileNotFoundError:  # another process took over, has written all runs, and has removed `scratch`
            if not run_files.is_run(path, experiment.run_id):
                raise

    def _context_free_of(self, experiment: Experiment) -> list[Score]:
        """Context-free baseline of an experiment's task, computed once for all seeds and entries."""
        key = (experiment.record.task, experiment.train.min_length, experiment.train.max_length, experiment.evaluate)
        if key not in self._context_free:
            self._context_free[key] = context_free_scores(
                experiment.task, experiment.measurements, experiment.train, experiment.evaluate
            )
        return self._context_free[key]

    def _metadata(self, experiment: Experiment, trained: Trained, testing: float) -> dict[str, Any]:
        """Metadata of a run, with the seconds of its test."""
        took_part = experiment.plugins.keys() | experiment.measured_by.keys()
        execution = ExecutionRecord(trained.stack, trained.compiled, trained.resumed)
        seconds = Seconds(trained.seconds, trained.seconds + testing)
        return run_metadata(experiment, took_part, self.loaded, execution, self._environment, seconds)

    @cached_property
    def _environment(self) -> dict[str, Any]:
        return environment(self.execution.device)


def run_metadata(
    tested: Tested,
    took_part: Collection[str],
    loaded: Iterable[Distribution],
    execution: ExecutionRecord,
    environment: Mapping[str, Any],
    seconds: Seconds,
) -> dict[str, Any]:
    """Metadata of a run. `took_part` has the names of the loaded distributions that decide or measure a number."""
    plugins = (
        LoadedPlugin(each.name, each.version, each.source, each.installed, each.origin, each.name in took_part, each.libraries)
        for each in loaded
    )
    return {
        "experiment": asdict(tested.record),
        "plugins": [plugin.content for plugin in plugins],
        "measurements": descriptions(tested.measurements),
        "execution": asdict(execution),
        "environment": {**environment, "date": datetime.now(UTC).isoformat(timespec="seconds")},
        "seconds": asdict(seconds),
        **({"facts": asdict(tested.task.facts)} if tested.task.facts else {}),
    }


def tuning_run(path: Path) -> TuningRun:
    """Outcome of a tuning run, from its sound file."""
    rows, metadata = run_files.read(path).to_pylist(), run_files.metadata(path)
    about, made = metadata["experiment"], metadata["execution"]
    return TuningRun(
        lr=about["train"]["lr"],
        seed=about["seed"],
        losses=coarse([(r["step"], r["value"], r["n"]) for r in rows if r["metric"] == "train_loss"], about["train"]["steps"]),
        diverged_step=rows[0]["diverged_step"],
        population=made["population"],
        compiled=made["compiled"],
    )
