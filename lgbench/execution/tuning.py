"""Two stages of a command under a protocol with learning rates to tune: tuning runs, then runs with the chosen rates.

Tuning runs are ordinary runs in a separate folder. The chosen learning rate follows from their files, which are written once.
Concurrent and resumed commands therefore choose the same rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lgbench.execution.work_queue import path_of, unfinished
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.tuning import Tuning, TuningRun, coarse
from lgbench.results import run_files


@dataclass(frozen=True)
class LearningRates:
    """Learning rates of experiments, from the files of a results folder."""

    experiments: Sequence[Experiment]
    results: Path

    @property
    def folder(self) -> Path:
        """Folder of the tuning runs."""
        return self.results / run_files.TUNING

    @property
    def every(self) -> list[Experiment]:
        """The experiments, and the tuning runs of their grids."""
        return [*(run for own in one_of_each(self.experiments) for run in own.tuning_runs), *self.experiments]

    def due(self) -> list[Experiment]:
        """Tuning runs to make next, each once, for experiments without a learning rate in a finished run."""
        return [*{run.run_id: run for _, missing in self._found().values() for run in missing}.values()]

    def tuned(self) -> list[Experiment]:
        """Experiments with their learning rates. An experiment with a missing tuning run is left out."""
        known = {key: tuning for key, (tuning, missing) in self._found().items() if not missing}
        every = ((experiment, _key(experiment)) for experiment in self.experiments)
        return [each.tuned(known[key]) if key else each for each, key in every if not key or key in known]

    def _found(self) -> dict[str, tuple[Tuning, list[Experiment]]]:
        """Outcome of each tuning so far, and the tuning runs to make next.

        The learning rate of a finished run stays, and holds for other seeds, too.
        """
        found: dict[str, tuple[Tuning, list[Experiment]]] = {}
        tuned = [experiment for experiment in self.experiments if experiment.first_tuning_run]
        left = {experiment.run_id for experiment in unfinished(tuned, self.results)}
        for experiment in tuned:
            if (key := _key(experiment)) not in found and experiment.run_id not in left:
                metadata = run_files.metadata(path_of(experiment, self.results))
                found[key] = msgspec.convert(metadata["experiment"]["tuning"], Tuning), []
        for experiment in one_of_each(tuned):
            if (key := _key(experiment)) not in found:
                found[key] = self._so_far(experiment)
        return found

    def _so_far(self, experiment: Experiment) -> tuple[Tuning, list[Experiment]]:
        """Outcome of an experiment's finished tuning runs, and the tuning runs to make next."""
        found = experiment.record.tuning
        assert found
        while further := found.further:
            due = [experiment.tuning_run(lr, seed) for lr in further for seed in found.seeds]
            if missing := unfinished(due, self.folder):
                return found, missing
            found = found.ended([*found.runs, *(tuning_run(path_of(run, self.folder)) for run in due)])
        return found, []


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


def said(experiment: Experiment) -> str:
    """Sentence about the chosen learning rate of an experiment."""
    record, tuning = experiment.record, experiment.record.tuning
    assert tuning
    losses = {lr: tuning.loss(lr) for lr in tuning.tried}
    tried = ", ".join(f"{lr:g}: {f'{loss:.4f}' if loss < float('inf') else 'diverged'}" for lr, loss in losses.items())
    why = ", the smallest, since all diverged" if min(losses.values()) == float("inf") else ""
    end = ", an end of the rates tried" if record.train.lr in (tuning.tried[0], tuning.tried[-1]) else ""
    return f"{record.entry} on {record.task}: learning rate {record.train.lr:g}{why or end} (loss with {tried})"


def one_of_each(experiments: Iterable[Experiment]) -> list[Experiment]:
    """First experiment of each tuning."""
    first: dict[str, Experiment] = {}
    for experiment in experiments:
        if key := _key(experiment):
            first.setdefault(key, experiment)
    return list(first.values())


def _key(experiment: Experiment) -> str:
    """Run id of the first tuning run, equal for experiments with one learning rate; empty for a fixed learning rate."""
    return experiment.first_tuning_run.run_id if experiment.first_tuning_run else ""
