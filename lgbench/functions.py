"""lgbench in Python: plan, train and test as `lgbench run` does, or population by population on an engine of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from lgbench.execution.device import Execution
from lgbench.execution.engines import Command, carry_out, executor_named
from lgbench.execution.jobs import run_population
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import Scheduler
from lgbench.execution.tracking import usable
from lgbench.execution.tuning import Stages
from lgbench.execution.work_queue import PlannedPopulation
from lgbench.experiment.plan import Request
from lgbench.experiment.plan import plan as resolve
from lgbench.extensions.function_files import take_functions
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions
from lgbench.results import run_files

__all__ = ["plan", "run", "run_population"]

Given = ParamSpec("Given")
Result = TypeVar("Result")


def _taking(make: Callable[Given, RunOptions]) -> Callable[[Callable[[RunOptions], Result]], Callable[Given, Result]]:
    """Decorator of a function of options, which then takes each option as an argument."""

    def decorate(function: Callable[[RunOptions], Result]) -> Callable[Given, Result]:
        @wraps(function)
        def called(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            return function(make(*args, **kwargs))

        # For help(): functools.wraps alone would show the one argument of the decorated function.
        shown = signature(make).replace(return_annotation=signature(function).return_annotation)
        called.__signature__ = shown  # type: ignore[attr-defined]
        return called

    return decorate


@_taking(RunOptions)
def run(options: RunOptions) -> pa.Table:
    """Train and test every task with every entry and seed, as `lgbench run` does, and return the rows of all runs.

    The arguments are the options of the command, under the same names; `plugins` are plugin files. An architecture may be a
    function in a file, such as "./my_model.py:build". A run that is already in `results` is read, not repeated. `average=None`
    tests every averager that comes with lgbench; a list as a value of `set` makes a grid over it. `probe` names probes, or is
    "all". With `keep_weights`, :func:`lgbench.load` gives the models of the runs. `track`
    names trackers, such as "tensorboard".

    Raises UsageError for unknown names and values out of range, before anything is trained, and RunFailed, with its cause,
    where training or testing broke.
    """
    outcome = carry_out(_command(options), Path(options.results))
    if outcome.failed:
        raise outcome.failed[0]
    return pa.concat_tables([run_files.read(path) for path in outcome.found + outcome.written])


@_taking(RunOptions)
def plan(options: RunOptions) -> list[PlannedPopulation]:
    """Populations that :func:`lgbench.run` with the same arguments would train, for another engine to run. Trains nothing.

    Give each to :func:`lgbench.run_population`, in any order, on any machine with the same plugins. Runs that the folder
    `results` has are left out. `workers` is the number of populations that train at the same time, which decides their sizes.
    `executor`, `track` and `checkpoint` change nothing here. Under a protocol that tries learning rates, the first populations
    are tuning runs, whose `tuning` is true. Once their files are in `results`, the same call gives the populations of the runs.

    Raises UsageError for unknown names and values out of range, and RunFailed for a model that cannot make a training step.
    """
    command, folder = _command(options), Path(options.results)
    planned, tuning = command.plan, False
    if any(experiment.tuning_runs for experiment in planned.experiments):
        stages = Stages(folder)
        first = stages.first(planned)
        tuning = bool(first.experiments)
        planned, folder = (first, stages.tuning) if tuning else (stages.second(planned), folder)
    scheduler = Scheduler(planned, folder, Execution.of(command.options), command.display, lambda group, error: None)
    return list(scheduler.planned(tuning))


def _command(options: RunOptions) -> Command:
    options = with_functions(options)
    return command_of(options, Registry.load(files=[*map(Path, options.plugins)]), ProgressDisplay())


def command_of(options: RunOptions, registry: Registry, display: ProgressDisplay) -> Command:
    """Command with all names resolved. Raises UsageError for unknown names and for values out of range."""
    request = _request(options)
    own = {option: str(value) for option, value in options.executor_options.items()}
    executor = executor_named(options.executor, own, registry.executors)
    trackers = usable(_listed(options.track), registry.trackers)
    return Command(options, request, resolve(request, registry), display, executor, trackers)


def with_functions(options: RunOptions) -> RunOptions:
    """Options with names of architectures in place of functions in files, which become plugin files."""
    names, files = take_functions(_listed(options.arch))
    return replace(options, arch=names, plugins=[*options.plugins, *files])


def _request(options: RunOptions) -> Request:
    """Request of these options. A list as a value of `set` is a grid."""
    return Request(
        tasks=_listed(options.task),
        archs=_listed(options.arch),
        averagers=None if options.average is None else _listed(options.average),
        seeds=tuple(options.seeds),
        protocol=options.protocol,
        changes={key: ",".join(map(str, _listed(value))) for key, value in options.set.items()},
        optimizer=options.optimizer,
        precision=options.precision,
        probes=_listed(options.probe),
    )


def _listed(values: Any) -> list[Any]:
    """List of one value or of several."""
    return list(values) if isinstance(values, list | tuple) else [values]
