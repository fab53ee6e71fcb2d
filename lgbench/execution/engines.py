"""The choice of an executor: this machine, a Ray cluster, or SLURM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lgbench.errors import RunFailed, UsageError
from lgbench.execution.manner import Command, PlanOutcome
from lgbench.execution.runner import run_plan
from lgbench.execution.tuning import FOLDER, Stage, one_of_each, said
from lgbench.execution.work_queue import unfinished
from lgbench.execution.workers import Workers


def carry_out(command: Command, results: Path) -> PlanOutcome:
    """Run everything of a command's plan on its engine; first the tuning runs that choose learning rates, if there are any.

    Raises UsageError where the engine is not here, or nothing can be written to `results`.
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
    return replace(command, plan=stage.plan(command.plan), stage=stage)


def _run(command: Command, folder: Path) -> PlanOutcome:
    plan, engine, display = command.plan, command.engine, command.display
    if engine.executor == "slurm":
        try:
            from lgbench.execution import slurm_jobs
        except ImportError as error:
            raise _not_installed("submitit", "slurm") from error
        return slurm_jobs.run_in_jobs(command, folder)
    if engine.executor == "ray":
        try:
            from lgbench.execution import ray_tasks
        except ImportError as error:
            raise _not_installed("Ray", "ray") from error
        with ray_tasks.connected(engine.ray_address):
            execution = ray_tasks.execution(command.manner)
            tasks = ray_tasks.RayTasks(execution, len(plan.experiments), command.plugins, display)
            return run_plan(plan, execution, folder, display, tasks, later=command.later)
    execution = command.manner.here()
    workers = Workers(execution, folder, command.plugins, display, command.trackers)
    return run_plan(plan, execution, folder, display, workers, later=command.later, trackers=command.trackers)


def _not_installed(library: str, extra: str) -> UsageError:
    return UsageError(f"{library} is not installed, which --executor {extra} needs: pip install 'lgbench[{extra}]'")
