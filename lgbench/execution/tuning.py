"""Two stages of a command under a protocol with learning rates to tune: tuning runs, then runs with the chosen rates.

Tuning runs are ordinary runs in a separate folder. The chosen learning rate follows from their files, which are written once.
Concurrent and resumed commands therefore choose the same rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from lgbench.execution.work_queue import unfinished
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan
from lgbench.experiment.tuning import Tuning, TuningRun, coarse
from lgbench.results import run_files

FOLDER = run_files.TUNING

_Key = tuple[str, ...]
"""Run ids of an experiment's tuning runs. Experiments with equal keys have the same learning rate."""


@dataclass(frozen=True)
class Stages:
    """Stages of a command on a results folder."""

    results: Path

    @property
    def tuning(self) -> Path:
        """Folder of the tuning runs."""
        return self.results / FOLDER

    def first(self, planned: Plan) -> Plan:
        """Plan of the tuning runs to make next, for experiments without a learning rate in a finished run."""
        known = self._finished(planned.experiments)
        each = [own for own in one_of_each(planned.experiments) if _key(own) not in known]
        needed = {run.run_id: run for own in each for run in self._so_far(own)[1]}
        return replace(planned, experiments=tuple(needed.values()), every=_every(planned))

    def second(self, planned: Plan) -> Plan:
        """Plan of the experiments with a known learning rate."""
        return replace(planned, experiments=tuple(self.tuned(planned.experiments)), every=_every(planned))

    def tuned(self, planned: Sequence[Experiment]) -> list[Experiment]:
        """Experiments with their learning rates. An experiment with a missing tuning run is left out.

        The learning rate of a finished run stays, and holds for other seeds, too.
        """
        known = self._finished(planned)
        for experiment in one_of_each(planned):
            if (key := _key(experiment)) not in known:
                found, missing = self._so_far(experiment)
                if not missing:
                    known[key] = found
        return [
            experiment.tuned(known[key]) if (key := _key(experiment)) in known else experiment
            for experiment in planned
            if not experiment.tuning_runs or _key(experiment) in known
        ]

    def _finished(self, planned: Sequence[Experiment]) -> dict[_Key, Tuning]:
        """Tuning outcomes in the metadata of finished runs."""
        found: dict[_Key, Tuning] = {}
        left = {experiment.run_id for experiment in unfinished(planned, self.results)}
        for experiment in planned:
            key = _key(experiment)
            if key and key not in found and experiment.run_id not in left:
                footer = run_files.metadata(run_files.path_for(self.results, experiment.record))
                found[key] = msgspec.convert(footer["experiment"]["tuning"], Tuning)
        return found

    def _so_far(self, experiment: Experiment) -> tuple[Tuning, list[Experiment]]:
        """Outcome of an experiment's finished tuning runs, and the tuning runs to make next."""
        found = experiment.record.tuning
        assert found
        while further := found.further:
            due = [experiment.tuning_run(lr, seed) for lr in further for seed in found.seeds]
            ended = {run: tuning_run(path) for run in due if (path := self._file(run))}
            if missing := [run for run in due if run not in ended]:
                return found, missing
            found = found.ended([*found.runs, *ended.values()])
        return found, []

    def _file(self, run: Experiment) -> Path | None:
        """Sound file of a tuning run; None without one."""
        path = run_files.path_for(self.tuning, run.record)
        return path if run_files.is_run(path, run.run_id) else None


def tuning_run(path: Path) -> TuningRun:
    """Outcome of a tuning run, from its sound file."""
    rows, footer = run_files.read(path).to_pylist(), run_files.metadata(path)
    about, made = footer["experiment"], footer["execution"]
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
    first: dict[_Key, Experiment] = {}
    for experiment in experiments:
        if experiment.tuning_runs:
            first.setdefault(_key(experiment), experiment)
    return list(first.values())


def _every(planned: Plan) -> tuple[Experiment, ...]:
    """Experiments of both stages."""
    return (*(run for own in one_of_each(planned.experiments) for run in own.tuning_runs), *planned.experiments)


def _key(experiment: Experiment) -> _Key:
    return tuple(run.run_id for run in experiment.tuning_runs)
