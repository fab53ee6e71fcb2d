"""lgbench in Python: plan, train and test as `lgbench run` does, or population by population on an engine of one's own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lgbench.contracts import DEFAULT_OPTIMIZER
from lgbench.errors import UsageError
from lgbench.execution.device import Execution
from lgbench.execution.engines import carry_out
from lgbench.execution.manner import Command, Engine, Manner
from lgbench.execution.populations import PlannedPopulation, scheduled
from lgbench.execution.progress import SilentProgress
from lgbench.execution.publishing import folder_of
from lgbench.execution.remote import run_population
from lgbench.execution.scheduler import Scheduler
from lgbench.execution.tuning import Stage
from lgbench.execution.work_queue import unfinished
from lgbench.experiment.plan import Request
from lgbench.experiment.plan import plan as resolve
from lgbench.experiment.protocols import DEFAULT_PROTOCOL, PRECISIONS
from lgbench.extensions.function_files import take_functions
from lgbench.extensions.registry import Registry
from lgbench.extensions.tracking import usable
from lgbench.results import run_files
from lgbench.results.addresses import Place, place

__all__ = ["plan", "run", "run_population"]


def run(
    task: str | Sequence[str],
    arch: str | Sequence[str],
    *,
    average: str | Sequence[str] | None = None,
    optimizer: str = DEFAULT_OPTIMIZER,
    seeds: Sequence[int] = (0, 1, 2),
    protocol: str = DEFAULT_PROTOCOL,
    set: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: str = PRECISIONS[0],
    compile: bool | None = None,
    population: int | None = None,
    workers: int | None = None,
    checkpoint: float = 60.0,
    plugins: Sequence[str | Path] = (),
    results: str | Place = "results",
    probe: str | Sequence[str] = (),
    keep_weights: bool = False,
    track: str | Sequence[str] = (),
    executor: str = "local",
    ray_address: str | None = None,
    slurm_partition: str | None = None,
    jobs: int | None = None,
    time: int | None = None,
    slurm_options: Mapping[str, str] | None = None,
) -> pa.Table:
    """Train and test every task with every entry and seed, as `lgbench run` does, and return the rows of all runs.

    It takes what the command takes, under the same names; `plugins` are plugin files. An architecture may be a function in a
    file, such as "./my_model.py:build". A run that is already in `results` is read, not repeated. `average=None` tests every
    averager that comes with lgbench; a list as a value of `set` makes a grid over it. `probe` names probes, or is "all". With
    `keep_weights`, :func:`lgbench.load` gives the models of the runs. `results` may be an address such as s3://bucket/folder.
    `track` names trackers, such as "tensorboard".

    Raises UsageError for unknown names and values out of range, before anything is trained, and RunFailed, with its cause,
    where training or testing broke.
    """
    engine = Engine.of(executor, ray_address, slurm_partition, jobs, time, slurm_options)
    archs, files = _archs(arch, plugins)
    request = _request(task, archs, average, optimizer, seeds, protocol, set, precision, probe)
    where, registry = place(results), Registry.load(files=files)
    manner = Manner(device, compile, population, checkpoint, workers, keep_weights, usable(_listed(track), registry))
    planned = resolve(request, registry)
    outcome = carry_out(Command(request, planned, manner, engine, files, SilentProgress()), where)
    if outcome.failed:
        raise outcome.failed[0]
    return pa.concat_tables([run_files.read(path) for path in outcome.found + outcome.written])


def plan(
    task: str | Sequence[str],
    arch: str | Sequence[str],
    *,
    average: str | Sequence[str] | None = None,
    optimizer: str = DEFAULT_OPTIMIZER,
    seeds: Sequence[int] = (0, 1, 2),
    protocol: str = DEFAULT_PROTOCOL,
    set: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: str = PRECISIONS[0],
    compile: bool | None = None,
    population: int | None = None,
    workers: int | None = None,
    plugins: Sequence[str | Path] = (),
    results: str | Place | None = None,
    probe: str | Sequence[str] = (),
) -> list[PlannedPopulation]:
    """The populations that :func:`lgbench.run` with the same arguments would train, for another engine to run. Trains nothing.

    Give each to :func:`lgbench.run_population`, in any order, on any machine that has the same plugins. Runs that the folder
    `results` has are left out. `workers` says how many populations will train at the same time, which decides their sizes.
    Under a protocol that tries learning rates, these are tuning runs first, whose `tuning` is true. Once their files are in
    `results`, the same call gives the populations of the runs.

    Raises UsageError for unknown names and values out of range, and RunFailed for a model that cannot make a training step.
    """
    archs, files = _archs(arch, plugins)
    request = _request(task, archs, average, optimizer, seeds, protocol, set, precision, probe)
    planned = resolve(request, Registry.load(files=files))
    execution = Execution.on(device, compile, population, workers=workers)
    silent = SilentProgress()
    with tempfile.TemporaryDirectory() as empty:
        where, experiments, tuning = place(empty if results is None else results), planned.experiments, False
        if any(experiment.tuning_runs for experiment in experiments):
            if results is None:
                raise UsageError(
                    f"the protocol {protocol} chooses learning rates by tuning runs, so plan must know where these are: "
                    "name a folder or an address as results"
                )
            stage = Stage.begin(experiments, where, silent.say)
            tuning = bool(unfinished(stage.of(experiments), stage.tuning))
            stage = replace(stage, first=tuning)
            planned, folder = stage.plan(planned), stage.tuning if tuning else stage.results
        else:
            folder = folder_of(where, experiments, silent.say)
        return list(scheduled(Scheduler(planned, folder, execution, silent, lambda group, error: None), tuning))


def _request(
    task: str | Sequence[str],
    arch: str | Sequence[str],
    average: str | Sequence[str] | None,
    optimizer: str,
    seeds: Sequence[int],
    protocol: str,
    set: Mapping[str, Any] | None,
    precision: str,
    probe: str | Sequence[str],
) -> Request:
    changes = {key: ",".join(str(v) for v in _listed(value)) for key, value in (set or {}).items()}
    averagers = None if average is None else _listed(average)
    probes = tuple(_listed(probe))
    return Request(_listed(task), _listed(arch), averagers, tuple(seeds), protocol, changes, optimizer, precision, probes)


def _archs(arch: str | Sequence[str], plugins: Sequence[str | Path]) -> tuple[list[str], list[Path]]:
    """The names of entries, and the plugin files with those that have functions which build architectures."""
    names, files = take_functions(_listed(arch))
    return names, [*map(Path, plugins), *files]


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
