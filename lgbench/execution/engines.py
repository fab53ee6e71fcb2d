"""The choice of an executor: this machine, a Ray cluster, or SLURM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lgbench.errors import UsageError
from lgbench.execution.manner import Engine, Manner
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.publishing import failures, published
from lgbench.execution.runner import PlanOutcome, run_plan
from lgbench.execution.workers import executor_for
from lgbench.experiment.plan import Plan, Request
from lgbench.results.addresses import Place


def carry_out(
    request: Request,
    plan: Plan,
    manner: Manner,
    engine: Engine,
    results: Place,
    plugins: Sequence[Path],
    display: ProgressDisplay,
) -> PlanOutcome:
    """Run everything of a plan, which was made of `request` with these plugin files, on the engine.

    Run files are in `results`; where that is an address, they are in a working folder too, to which the outcome's paths lead.
    Raises UsageError where the engine is not here, or nothing can be written to `results`.
    """
    if isinstance(results, Path):
        return _carried_out(request, plan, manner, engine, results, plugins, display)
    with published(results, plan.experiments, display.say) as work:
        outcome = _carried_out(request, plan, manner, engine, work.folder, plugins, display)
    written = [path for path in outcome.written if path.name not in work.lost]
    found = [*outcome.found, *(path for path in outcome.written if path.name in work.lost)]
    return PlanOutcome(written, found, [*outcome.failed, *failures(work)])


def _carried_out(
    request: Request,
    plan: Plan,
    manner: Manner,
    engine: Engine,
    folder: Path,
    plugins: Sequence[Path],
    display: ProgressDisplay,
) -> PlanOutcome:
    if engine.executor == "slurm":
        try:
            from lgbench.execution import slurm_jobs
        except ImportError as error:
            raise _not_installed("submitit", "slurm") from error
        return slurm_jobs.run_in_jobs(request, plan, manner, engine, folder, plugins, display)
    if engine.executor == "ray":
        try:
            from lgbench.execution import ray_tasks
        except ImportError as error:
            raise _not_installed("Ray", "ray") from error
        with ray_tasks.connected(engine.ray_address):
            execution = ray_tasks.execution(manner)
            return run_plan(
                plan, execution, folder, display, ray_tasks.RayTasks(execution, len(plan.experiments), plugins, display)
            )
    execution = manner.here()
    return run_plan(plan, execution, folder, display, executor_for(plan, execution, folder, plugins, display))


def _not_installed(library: str, extra: str) -> UsageError:
    return UsageError(f"{library} is not installed, which --executor {extra} needs: pip install 'lgbench[{extra}]'")
