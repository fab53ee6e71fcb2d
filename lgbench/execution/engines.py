"""Carrying out a command: first its tuning runs, then its runs, by worker processes or by an executor of a plugin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from lgbench.contracts import Demand, Executor
from lgbench.contracts.executors import option_types
from lgbench.errors import RunFailed, UsageError, first_line, unknown
from lgbench.execution.device import choose_device
from lgbench.execution.jobs import Jobs, JobSettings
from lgbench.execution.manner import Command, PlanOutcome
from lgbench.execution.runner import run_plan
from lgbench.execution.tuning import FOLDER, Stage, one_of_each, said
from lgbench.execution.work_queue import unfinished
from lgbench.execution.workers import ONE_THREAD, Workers
from lgbench.extensions.catalog import Catalog

LOCAL = "local"
"""Name of the executor of the core: worker processes on this machine."""
PASSED_ON = ("LGBENCH_PLUGINS", "LGBENCH_TRACE")
"""Environment variables that other machines need."""


def carry_out(command: Command, results: Path) -> PlanOutcome:
    """Run everything of a command's plan on its executor; first the tuning runs that choose learning rates, if there are any.

    Raises UsageError where the executor cannot be used, or nothing can be written to `results`.
    """
    planned = command.plan.experiments
    if not any(experiment.tuning_runs for experiment in planned):
        return _run(command, results)
    first = Stage.begin(results)
    failed: list[RunFailed] = []
    if unfinished(first.of(planned), first.tuning):
        known = {experiment.run_id for experiment in first.tuned(planned)}
        tuning = replace(
            _of_stage(command, first),
            manner=replace(command.manner, keep_weights=False),
            trackers=(),
            later=unfinished(planned, first.results),
        )
        failed = _run(tuning, results / FOLDER).failed
        for experiment in one_of_each(first.tuned(planned)):
            if experiment.run_id not in known:
                command.display.say(said(experiment))
    outcome = _run(_of_stage(command, replace(first, first=False)), results)
    return PlanOutcome(outcome.written, outcome.found, [*failed, *outcome.failed])


def _of_stage(command: Command, stage: Stage) -> Command:
    """The same command for one stage of its plan."""
    return replace(command, plan=stage.plan(command.plan))


def _run(command: Command, folder: Path) -> PlanOutcome:
    plan, display, trackers = command.plan, command.display, command.trackers
    if command.executor is None:
        execution = command.manner.here()
        workers = Workers(execution, folder, command.plugins, display, trackers)
        return run_plan(plan, execution, folder, display, workers, later=command.later, trackers=trackers)
    gpu = choose_device(command.manner.device).type == "cuda"
    environ = ONE_THREAD | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    hidden = folder.resolve() / f".{command.executor.name}"
    with command.executor.open(Demand(command.manner.workers, gpu, environ, hidden)) as pool:
        execution = replace(command.manner, workers=pool.workers).here()
        settings = JobSettings(execution, command.plugins, {each.thing.name: each.origin.name for each in trackers})
        jobs = Jobs(pool, settings, len(plan.experiments), display)
        return run_plan(plan, execution, folder, display, jobs, later=command.later)


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
