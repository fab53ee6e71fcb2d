"""The choice of an executor: this machine, a Ray cluster, or SLURM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lgbench.errors import UsageError, unknown
from lgbench.execution.manner import Manner
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.runner import PlanOutcome, run_plan
from lgbench.execution.workers import executor_for
from lgbench.experiment.plan import Plan, Request

EXECUTORS = ("local", "ray", "slurm")


@dataclass(frozen=True)
class Engine:
    """An executor and the options that it alone has. Raises UsageError where they do not fit together."""

    executor: str = "local"
    ray_address: str | None = None
    """None for a cluster that is started for this command, and ends with it."""
    slurm_partition: str | None = None
    """None for the cluster's default."""
    jobs: int | None = None
    time: int | None = None
    """Minutes of a job."""
    slurm_options: tuple[tuple[str, str], ...] = ()
    """Options of sbatch, by their long names without dashes."""

    @classmethod
    def of(
        cls,
        executor: str,
        ray_address: str | None,
        slurm_partition: str | None,
        jobs: int | None,
        time: int | None,
        slurm_options: Mapping[str, str] | None,
    ) -> Engine:
        return cls(executor, ray_address, slurm_partition, jobs, time, tuple((slurm_options or {}).items()))

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)
        slurm = {
            "--slurm-partition": self.slurm_partition,
            "--jobs": self.jobs,
            "--time": self.time,
            "--slurm-option": self.slurm_options or None,
        }
        for owner, options in (("ray", {"--ray-address": self.ray_address}), ("slurm", slurm)):
            for option, value in options.items():
                if value is not None and self.executor != owner:
                    raise UsageError(f"{option} says nothing to the executor {self.executor}: use it with --executor {owner}")
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs is {self.jobs}, expected at least 1 job")
        if self.time is not None and self.time < 1:
            raise UsageError(f"--time is {self.time}, expected minutes, at least 1")


def carry_out(
    request: Request,
    plan: Plan,
    manner: Manner,
    engine: Engine,
    folder: Path,
    plugins: Sequence[Path],
    display: ProgressDisplay,
) -> PlanOutcome:
    """Run everything of a plan, which was made of `request` with these plugin files, on the engine."""
    if engine.executor == "slurm":
        from lgbench.execution import slurm_jobs

        return slurm_jobs.run_in_jobs(request, plan, manner, engine, folder, plugins, display)
    if engine.executor == "ray":
        from lgbench.execution import ray_tasks

        with ray_tasks.connected(engine.ray_address):
            execution = ray_tasks.execution(manner)
            return run_plan(
                plan, execution, folder, display, ray_tasks.RayTasks(execution, len(plan.experiments), plugins, display)
            )
    execution = manner.here()
    return run_plan(plan, execution, folder, display, executor_for(plan, execution, folder, plugins, display))
