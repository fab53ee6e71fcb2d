"""The choice of an executor: this machine, a Ray cluster, or SLURM."""

from __future__ import annotations

from pathlib import Path

from lgbench.errors import UsageError
from lgbench.execution.manner import Command, PlanOutcome
from lgbench.execution.publishing import failures, published
from lgbench.execution.runner import run_plan
from lgbench.execution.workers import executor_for
from lgbench.results.addresses import Place


def carry_out(command: Command, results: Place) -> PlanOutcome:
    """Run everything of a command's plan on its engine.

    Run files are in `results`; where that is an address, they are in a working folder too, to which the outcome's paths lead.
    Raises UsageError where the engine is not here, or nothing can be written to `results`.
    """
    if isinstance(results, Path):
        return _carried_out(command, results)
    with published(results, command.plan.experiments, command.display.say) as work:
        outcome = _carried_out(command, work.folder)
    written = [path for path in outcome.written if path.name not in work.lost]
    found = [*outcome.found, *(path for path in outcome.written if path.name in work.lost)]
    return PlanOutcome(written, found, [*outcome.failed, *failures(work)])


def _carried_out(command: Command, folder: Path) -> PlanOutcome:
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
            return run_plan(plan, execution, folder, display, tasks)
    execution = command.manner.here()
    workers = executor_for(plan, execution, folder, command.plugins, display)
    return run_plan(plan, execution, folder, display, workers)


def _not_installed(library: str, extra: str) -> UsageError:
    return UsageError(f"{library} is not installed, which --executor {extra} needs: pip install 'lgbench[{extra}]'")
