"""lgbench in Python: plan, train and test as `lgbench run` does, or population by population on an engine of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from lgbench.contracts import Demand, Executor, Tracker
from lgbench.contracts.services import option_types
from lgbench.errors import RunFailed, UsageError, first_line, lacks_memory, located, unknown
from lgbench.execution.device import Execution, choose_device
from lgbench.execution.jobs import Jobs, run_population
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import Scheduler
from lgbench.execution.tracking import usable
from lgbench.execution.tuning import Stages, one_of_each, said
from lgbench.execution.work_queue import Dispatcher, PlannedPopulation, path_of, title_of, unfinished
from lgbench.execution.workers import ONE_THREAD, Setup, Workers
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan
from lgbench.experiment.plan import plan as resolve
from lgbench.extensions.catalog import Catalog, Found
from lgbench.extensions.directory import not_installed
from lgbench.extensions.function_files import take_functions
from lgbench.extensions.registry import Registry
from lgbench.options import RunOptions, listed
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
    own = {option: str(value) for option, value in options.executor_options.items()}
    executor = executor_named(options.executor, own, registry.executors)
    trackers = usable(listed(options.track), registry.trackers)
    return Command(options, resolve(options, registry), display, executor, trackers)


def with_functions(options: RunOptions) -> RunOptions:
    """Options with names of architectures in place of functions in files, which become plugin files."""
    names, files = take_functions(listed(options.arch))
    return replace(options, arch=names, plugins=[*options.plugins, *files])


@dataclass(frozen=True)
class PlanOutcome:
    """Outcome of a command: run files written by the command, run files found at its end, and failures."""

    written: list[Path]
    found: list[Path]
    failed: list[RunFailed]


def run_plan(
    plan: Plan,
    execution: Execution,
    folder: Path,
    display: ProgressDisplay,
    dispatcher: Dispatcher,
    later: Sequence[Experiment] = (),
) -> PlanOutcome:
    """Run all experiments of a plan without a run file in `folder`. A failed population does not stop the plan.

    Other commands may run the same plan at the same time. Returns when each run has a file or failed in this command. The
    display adds the experiments in `later` to the time left. Raises UsageError before any training if `folder` is not writable.
    """
    run_files.require_writable(folder)
    written: list[Path] = []
    failed: list[RunFailed] = []
    not_made: set[str] = set()

    def fail(population: Sequence[Experiment], error: Exception) -> None:
        failure = RunFailed(f"{title_of([each.record for each in population])} failed: {located(error)}")
        failure.__cause__ = error
        failed.append(failure)
        not_made.update(path.name for each in population if not run_files.is_run(path := path_of(each, folder), each.run_id))

    scheduler = Scheduler(plan, folder, execution, display, fail)
    left = [experiment for group in scheduler.groups for experiment in group]
    with display.all([*left, *later], execution.workers):
        for done in dispatcher.run(scheduler):
            written += done.written
            planned = done.population.planned
            if done.error and lacks_memory(done.error) and scheduler.halve(done.population):
                half = -(-planned.models // 2)
                display.say(f"{planned.title} needed more memory than is free; trained again, at most {half} at once")
            elif done.error:
                fail(done.population.experiments, done.error)
    others = set(os.listdir(folder)) - {path.name for path in written} - not_made
    found = [folder / name for experiment in plan.experiments if (name := run_files.name_for(experiment.record)) in others]
    return PlanOutcome(written, found, failed)


LOCAL = "local"
"""Name of the core's executor: worker processes on this machine."""
PASSED_ON = ("LGBENCH_PLUGINS", "LGBENCH_TRACE")
"""Environment variables copied to other machines."""


@dataclass(frozen=True)
class Command:
    """A user's command of `lgbench run`, without the results folder."""

    options: RunOptions
    plan: Plan
    display: ProgressDisplay
    executor: Executor | None = None
    """None for worker processes on this machine."""
    trackers: Sequence[Found[Tracker]] = ()
    """Trackers of the runs. Tuning runs have no trackers."""
    later: Sequence[Experiment] = ()
    """Experiments to run after the plan. The time left includes theirs."""


def carry_out(command: Command, results: Path) -> PlanOutcome:
    """Run the plan of a command on its executor, beginning with tuning runs for the choice of learning rates, if any.

    Raises UsageError for an unusable executor or an unwritable folder `results`.
    """
    planned = command.plan.experiments
    if not any(experiment.tuning_runs for experiment in planned):
        return _run(command, results)
    stages = Stages(results)
    failed: list[RunFailed] = []
    while not failed and (first := stages.first(command.plan)).experiments:  # an open grid may go on several times
        known = {experiment.run_id for experiment in stages.tuned(planned)}
        options = replace(command.options, keep_weights=False)
        tuning = replace(command, plan=first, options=options, trackers=(), later=unfinished(planned, results))
        failed = _run(tuning, stages.tuning).failed
        for experiment in one_of_each(stages.tuned(planned)):
            if experiment.run_id not in known:
                command.display.say(said(experiment))
    outcome = _run(replace(command, plan=stages.second(command.plan)), results)
    return PlanOutcome(outcome.written, outcome.found, [*failed, *outcome.failed])


def _run(command: Command, folder: Path) -> PlanOutcome:
    options, display = command.options, command.display
    plugins = tuple(map(Path, options.plugins))
    trackers = {each.thing.name: each.origin.name for each in command.trackers}
    if command.executor is None:
        setup = Setup(folder, Execution.of(options), plugins, trackers)
        return run_plan(command.plan, setup.execution, folder, display, Workers(setup, display), command.later)
    gpu = choose_device(options.device).type == "cuda"
    environ = ONE_THREAD | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    hidden = folder.resolve() / f".{command.executor.name}"
    with command.executor.open(Demand(options.workers, gpu, environ, hidden)) as pool:
        setup = Setup(folder, Execution.of(replace(options, workers=pool.workers)), plugins, trackers)
        jobs = Jobs(pool, setup, len(command.plan.experiments), display)
        return run_plan(command.plan, setup.execution, folder, display, jobs, command.later)


def executor_named(name: str, options: Mapping[str, str], known: Catalog[Executor]) -> Executor | None:
    """Executor with the options of a user; None for "local". Raises UsageError for unknown names and wrong values."""
    if name == LOCAL:
        if options:
            raise UsageError(f"--executor-option {next(iter(options))} needs another executor: {LOCAL} has no options")
        return None
    executor = known.get(name)
    if executor is None:
        raise not_installed("executor", name, [LOCAL, *known.names()])
    hints = option_types(executor)
    own: dict[str, Any] = {}
    for option, text in options.items():
        if option not in hints:
            raise unknown(f"option of the executor {name}", option, hints)
        try:
            own[option] = msgspec.convert(text, hints[option], strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"the option {option} of the executor {name} cannot be {text!r}: {first_line(error)}") from error
    return replace(executor, **own) if own else executor  # type: ignore[type-var]
