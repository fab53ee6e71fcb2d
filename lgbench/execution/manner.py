"""A command of `lgbench run`: its options as they were given, everything that it asks for, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lgbench.contracts import Executor, Tracker
from lgbench.errors import RunFailed
from lgbench.execution.device import Execution
from lgbench.execution.progress import ProgressDisplay
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Plan, Request
from lgbench.extensions.catalog import Found


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
class Command:
    """Everything that a user asked for, except for the place of the run files."""

    request: Request
    plan: Plan
    """Made of the request, with these plugin files."""
    manner: Manner
    plugins: Sequence[Path]
    display: ProgressDisplay
    executor: Executor | None = None
    """None for worker processes on this machine."""
    later: Sequence[Experiment] = ()
    """Experiments that will be run after the plan. The time that is left includes theirs."""
    trackers: Sequence[Found[Tracker]] = ()
    """Trackers of the runs. Tuning runs have none."""


@dataclass(frozen=True)
class PlanOutcome:
    """The run files of all experiments, written by this command or found at its end, and its failures."""

    written: list[Path]
    found: list[Path]
    failed: list[RunFailed]
