"""Execution of a command: tuning runs, then runs, by worker processes or by a plugin's executor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from lgbench.contracts import Demand, Executor, Tracker
from lgbench.contracts.executors import option_types
from lgbench.errors import RunFailed, UsageError, first_line, lacks_memory, located, unknown
from lgbench.execution.device import Execution, choose_device
from lgbench.execution.dispatcher import Dispatcher
from lgbench.execution.jobs import Jobs
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.scheduler import Scheduler
from lgbench.execution.tuning import Stages, one_of_each, said
from lgbench.execution.work_queue import path_of, title_of, unfinished
from lgbench.execution.workers import ONE_THREAD, Setup, Workers
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan, Request
from lgbench.extensions.catalog import Catalog, Found
from lgbench.options import RunOptions
from lgbench.results import run_files


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
    request: Request
    plan: Plan
    """Plan of the request."""
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
        raise unknown("executor", name, [LOCAL, *known.names()])
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
