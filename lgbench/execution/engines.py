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
from lgbench.errors import RunFailed, UsageError, first_line, unknown
from lgbench.execution.device import ExecutionOptions, choose_device
from lgbench.execution.jobs import Jobs, JobSettings
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.runner import PlanOutcome, run_plan
from lgbench.execution.tuning import FOLDER, Stage, one_of_each, said
from lgbench.execution.work_queue import unfinished
from lgbench.execution.workers import ONE_THREAD, Workers
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan, Request
from lgbench.extensions.catalog import Catalog, Found

LOCAL = "local"
"""Name of the core's executor: worker processes on this machine."""
PASSED_ON = ("LGBENCH_PLUGINS", "LGBENCH_TRACE")
"""Environment variables copied to other machines."""


@dataclass(frozen=True)
class Command:
    """A user's command of `lgbench run`, without the results folder."""

    request: Request
    plan: Plan
    """Plan of the request."""
    execution: ExecutionOptions
    plugins: Sequence[Path]
    """Plugin files of the command, with which the plan was made."""
    display: ProgressDisplay
    executor: Executor | None = None
    """None for worker processes on this machine."""
    later: Sequence[Experiment] = ()
    """Experiments to run after the plan. The time left includes theirs."""
    trackers: Sequence[Found[Tracker]] = ()
    """Trackers of the runs. Tuning runs have no trackers."""


def carry_out(command: Command, results: Path) -> PlanOutcome:
    """Run the plan of a command on its executor, beginning with tuning runs for the choice of learning rates, if any.

    Raises UsageError for an unusable executor or an unwritable folder `results`.
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
            execution=replace(command.execution, keep_weights=False),
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
    """Command limited to one stage of the plan."""
    return replace(command, plan=stage.plan(command.plan))


def _run(command: Command, folder: Path) -> PlanOutcome:
    plan, display, trackers = command.plan, command.display, command.trackers
    if command.executor is None:
        execution = command.execution.here()
        workers = Workers(execution, folder, command.plugins, display, trackers)
        return run_plan(plan, execution, folder, display, workers, later=command.later, trackers=trackers)
    gpu = choose_device(command.execution.device).type == "cuda"
    environ = ONE_THREAD | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    hidden = folder.resolve() / f".{command.executor.name}"
    with command.executor.open(Demand(command.execution.workers, gpu, environ, hidden)) as pool:
        execution = replace(command.execution, workers=pool.workers).here()
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
