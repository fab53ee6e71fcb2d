"""A command of `lgbench run`: its options as they were given, everything that it asks for, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lgbench.contracts import Tracker
from lgbench.errors import RunFailed, UsageError, unknown
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.tuning import Stage
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan, Request
from lgbench.extensions.catalog import Found

EXECUTORS = ("local", "ray", "slurm")


@dataclass(frozen=True)
class Manner:
    """Plain values, for this machine or for another one: each makes of them what it has."""

    device: str = "auto"
    compile: bool | None = None
    population: int | None = None
    checkpoint: float = 60.0
    workers: int | None = None
    keep_weights: bool = False
    """Of the runs; those of tuning runs never are."""

    def here(self) -> Execution:
        """On this machine. Raises UsageError where a number is out of range, or where the device is not here."""
        return Execution.on(self.device, self.compile, self.population, self.checkpoint, self.workers, self.keep_weights)


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


@dataclass(frozen=True)
class Command:
    """Everything that a user asked for, except for the place of the run files."""

    request: Request
    plan: Plan
    """Made of the request, with these plugin files."""
    manner: Manner
    engine: Engine
    plugins: Sequence[Path]
    display: ProgressDisplay
    stage: Stage | None = None
    """Where the protocol tries learning rates: which stage of the request the plan is of."""
    later: Sequence[Experiment] = ()
    """Experiments that will be run after the plan. The time that is left includes theirs."""
    trackers: Sequence[Found[Tracker]] = ()
    """Trackers of the runs. Tuning runs have none."""

    def __post_init__(self) -> None:
        """Raises UsageError where trackers would hear nothing while models train."""
        if self.trackers and self.engine.executor == "ray":
            raise UsageError(
                "--track cannot follow --executor ray, whose tasks tell nothing before they end: use --executor local or slurm"
            )


@dataclass(frozen=True)
class PlanOutcome:
    """The run files of all experiments, written by this command or found at its end, and its failures."""

    written: list[Path]
    found: list[Path]
    failed: list[RunFailed]
