"""Verification: a rerun of training and test, and a comparison of all numbers with the file.

A rerun on the original machine is equal to the bit. Another machine or torch version rounds differently, and training amplifies
rounding. A change of initial weights by 1e-7 moved the TVD of dyck-2-3 by up to 0.12 in the mean over lengths, and by 0.22 at
one length; set complement moved far less. At a high learning rate rounding can decide whether a seed fits.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import torch

from lgbench.errors import lacks_memory
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.runner import PopulationRunner, tuning_run
from lgbench.execution.work_queue import PlannedPopulation, path_of
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.tuning import TuningRun
from lgbench.extensions.loading import libraries_of
from lgbench.results import run_files
from lgbench.results.stored_runs import ExecutionRecord, Run, StoredRun
from lgbench.submissions.verdict import Failure, RerunVerdict, Tolerance

MAX_MODELS = 64
"""Largest population of a rerun."""


def drawn(runs: Sequence[StoredRun], size: int | None) -> list[StoredRun]:
    """Unpredictable sample of `size` runs, in order; all runs for None or a larger `size`."""
    if size is None or size >= len(runs):
        return list(runs)
    chosen = random.SystemRandom().sample(range(len(runs)), size)
    return [runs[index] for index in sorted(chosen)]


def verify(
    runs: Sequence[Run], device: torch.device, display: ProgressDisplay, tolerance: Tolerance, tuning: bool = True
) -> Iterator[RerunVerdict | Failure]:
    """Verdict on each run after a rerun of training and test. Writes nothing except temporary files.

    With `tuning`, the tuning runs behind the learning rates are trained again too, each once.
    """
    verifier = Verifier(device, display, tolerance, tuning)
    ordered = sorted(runs, key=lambda run: (run.record.task, run.record.seed))
    for part, population, compiled in _populations((run, run.experiment, run.metadata.execution) for run in ordered):
        yield from verifier.outcomes(part, population, compiled)


Item = TypeVar("Item")


def _populations(
    items: Iterable[tuple[Item, Experiment, ExecutionRecord | TuningRun]],
) -> Iterator[tuple[Sequence[Item], int, bool]]:
    """Items of experiments that train together, the size of their population, and whether its step is compiled."""
    groups: dict[tuple[Hashable, int, bool], list[Item]] = defaultdict(list)
    for item, experiment, made in items:
        groups[experiment.population_key, min(made.population, MAX_MODELS), made.compiled].append(item)
    for (_, population, compiled), own in groups.items():
        yield from ((part, population, compiled) for part in _parts(own, population))


def _parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


class Rerun(NamedTuple):
    """Rows and metadata of a rerun, also in the form of a tuning run."""

    rows: pa.Table
    metadata: Mapping[str, Any]
    tuning_run: TuningRun


class Verifier:
    """Reruns on a device, with one rerun of each tuning run."""

    def __init__(self, device: torch.device, display: ProgressDisplay, tolerance: Tolerance, tuning: bool) -> None:
        self.display, self.tolerance, self.tuning = display, tolerance, tuning
        self._execution = Execution(device)
        self._tuned: dict[tuple[str, int, bool], TuningRun] = {}
        """By run id, population and whether the step was compiled."""

    def outcomes(self, runs: Sequence[Run], population: int, compiled: bool) -> list[RerunVerdict | Failure]:
        """One outcome for each run of a population, trained together, or in halves if memory does not suffice."""
        try:
            found = self._again([run.experiment for run in runs], population, compiled)
            verdicts = [self._verdict(run, again) for run, again in zip(runs, found, strict=True)]
            return [self._with_tuning(verdict) for verdict in verdicts] if self.tuning else [*verdicts]
        except Exception as error:  # a plugin's model may raise anything
            if population == 1 or not lacks_memory(error):
                return [Failure(run, error) for run in runs]
        half = (population + 1) // 2
        return [outcome for part in _parts(runs, half) for outcome in self.outcomes(part, half, compiled)]

    def _again(self, experiments: Sequence[Experiment], population: int, compiled: bool) -> list[Rerun]:
        """Runs made again in a population of a given size.

        Copies of the last experiment fill the population: rounding depends on the number of models, not on the other models.
        """
        whole = [*experiments, *[experiments[-1]] * (population - len(experiments))]
        with tempfile.TemporaryDirectory(prefix="lgbench-") as scratch:
            folder = Path(scratch)
            runner = PopulationRunner(self._execution, folder, self.display)
            for _ in runner.run(PlannedPopulation.of(whole, population, compiled), whole, folder):
                pass
            paths = [path_of(experiment, folder) for experiment in experiments]
            return [Rerun(run_files.read(path), run_files.metadata(path), tuning_run(path)) for path in paths]

    def _verdict(self, run: Run, again: Rerun) -> RerunVerdict:
        otherwise = _otherwise(run, again.metadata["environment"], again.metadata["execution"], self._execution.device)
        return RerunVerdict.of(run, again.rows, list(otherwise), self.tolerance)

    def _with_tuning(self, verdict: RerunVerdict) -> RerunVerdict:
        """Verdict on a run and on the tuning runs behind its learning rate."""
        experiment = verdict.run.experiment
        if (tuning := experiment.record.tuning) is None:
            return verdict
        every = [(experiment.tuning_run(filed.lr, filed.seed), filed) for filed in tuning.runs]
        left = ((each, *each) for each in every if _tuned_key(*each) not in self._tuned)
        for part, population, compiled in _populations(left):
            found = self._again([run for run, _ in part], population, compiled)
            self._tuned |= {_tuned_key(*each): again.tuning_run for each, again in zip(part, found, strict=True)}
        return verdict.with_tuning(tuning.runs, [self._tuned[_tuned_key(*each)] for each in every])


def _tuned_key(run: Experiment, filed: TuningRun) -> tuple[str, int, bool]:
    return run.run_id, filed.population, filed.compiled


def _otherwise(run: Run, environment: Mapping[str, Any], execution: Mapping[str, Any], device: torch.device) -> Iterator[str]:
    """A sentence for each difference with an effect on rounding: software, machine and training."""
    there, made = run.metadata.environment, run.metadata.execution
    pairs = [
        ("torch", there.torch, environment["torch"]),
        ("the device", there.device, environment["device"]),
        ("the number of threads", there.threads, environment["threads"]),
        ("the number of models in the population", made.population, execution["population"]),
        ("whether the step is compiled", made.compiled, execution["compiled"]),
    ]
    for plugin in run.metadata.took_part.values():
        own = dict(libraries_of(plugin.name))
        pairs += [(library, version, own.get(library)) for library, version in plugin.libraries.items()]
    yield from (f"{name} is {filed!a:.100} in the file and {here!a} here" for name, filed, here in pairs if filed != here)
    if device.type != "cpu":
        yield "a GPU adds in no fixed order"
