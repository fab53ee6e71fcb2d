"""Jobs of SLURM, which share a results folder. Imported only where SLURM is asked for.

Each job is a command of its own: it claims populations in the shared folder until nothing is left that is free. Shortly before
its time is over, submitit puts it back into the queue, and it goes on from the checkpoints. This process submits the jobs and
waits. Where jobs end and runs are left, since somebody cancelled one, it submits others.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import submitit
import torch
from rich.console import Console

from lgbench.errors import LgbenchError, RunFailed, UsageError
from lgbench.execution.console import ConsoleProgress
from lgbench.execution.device import Execution
from lgbench.execution.manner import Command, Engine, Manner, PlanOutcome
from lgbench.execution.progress import ProgressDisplay
from lgbench.execution.runner import require_writable, run_plan
from lgbench.execution.scheduler import path_of
from lgbench.execution.slurm_queue import Queue, failures
from lgbench.execution.tracking import usable
from lgbench.execution.tuning import Stage
from lgbench.execution.work_queue import unfinished
from lgbench.execution.workers import ONE_THREAD, Workers
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.plan import Request, plan
from lgbench.extensions.registry import Registry

JOBS = ".slurm"
"""The folder of the orders and logs of jobs, in the results folder."""
MINUTES = 60
"""Of a job, unless the user says how many."""
MOST_REQUEUES = 10_000
"""How often a job goes on when its time is over. Each time it gets further, so nothing needs to stop it."""
WARNING_SECONDS = 90
"""So long before its time is over a job stops, at most."""
LOOK_SECONDS = 2.0
"""Between two looks at the folder and the queue."""


@dataclass(frozen=True)
class Job:
    """The work of a job, as plain values. submitit calls it on a node."""

    request: Request
    manner: Manner
    folder: str
    plugins: tuple[str, ...]
    stage: Stage | None = None
    track: tuple[str, ...] = ()

    def __call__(self) -> list[str]:
        """Train and test what is free. Returns a sentence for each population that failed."""
        try:
            registry = Registry.load(files=map(Path, self.plugins))
            planned = plan(self.request, registry)
            trackers = usable(self.track, registry.trackers)
            planned = self.stage.plan(planned) if self.stage else planned
            execution, folder = self.manner.here(), Path(self.folder)
            display = ConsoleProgress(Console(width=200))
            plugins = [Path(path) for path in self.plugins]
            executor = Workers(execution, folder, plugins, display, trackers)
            outcome = run_plan(planned, execution, folder, display, executor, wait=False, trackers=trackers)
        except LgbenchError as error:
            return [str(error)]
        return [str(failure) for failure in outcome.failed]

    def checkpoint(self) -> Any:
        """The same again, when submitit puts the job back into the queue: the folder knows how far it was."""
        return submitit.helpers.DelayedSubmission(self)


def run_in_jobs(command: Command, folder: Path) -> PlanOutcome:
    """Run everything of a command's plan in jobs of SLURM, and wait for them.

    Raises UsageError where SLURM is not here or does not take the jobs. An interrupt cancels them.
    """
    engine, manner = command.engine, replace(command.manner, workers=command.manner.workers or 1)
    Execution(
        torch.device("cpu"), manner.compile, manner.population, manner.checkpoint, manner.workers or 1
    )  # the numbers are in range
    folder = folder.resolve()
    logs = folder / JOBS / uuid4().hex[:8]
    executor = _executor(engine, manner, logs)
    require_writable(folder)
    experiments = command.plan.experiments
    before = unfinished(experiments, folder)
    plugins = tuple(str(path.resolve()) for path in command.plugins)
    job = Job(
        command.request,
        manner,
        str(folder),
        plugins,
        _resolved(command.stage),
        tuple(each.thing.name for each in command.trackers),
    )
    queue = Queue(executor, job)
    failed: list[str] = []
    if before:
        try:
            with _stopped(queue):
                failed = _wait(queue, min(engine.jobs or 1, len(before)), before, folder, logs, command.display)
        finally:
            if not failed:
                _remove(logs)
    missing, asked = set(unfinished(before, folder)), set(before)
    written = [path_of(experiment, folder) for experiment in before if experiment not in missing]
    found = [path_of(experiment, folder) for experiment in experiments if experiment not in asked]
    return PlanOutcome(written, found, [RunFailed(sentence) for sentence in failed])


def _wait(
    queue: Queue, jobs: int, experiments: Sequence[Experiment], folder: Path, logs: Path, display: ProgressDisplay
) -> list[str]:
    """Submit jobs until no run is left, or until they fail. Returns why they failed."""
    left, failed = list(experiments), dict[str, None]()
    queue.submit(jobs)
    display.say(f"{_count(jobs, 'job')} submitted for {_count(len(left), 'run')}; logs are in {logs}")
    at_submission, shown = len(left), len(left)
    while True:
        time.sleep(LOOK_SECONDS)
        ended = queue.ended()  # before the folder, in which jobs that have ended write no more
        left = unfinished(left, folder)
        if len(left) < shown:
            shown = len(left)
            display.say(f"{len(experiments) - shown} of {_count(len(experiments), 'run')} written")
        if not left:
            return list(failed)
        failed |= dict.fromkeys(sentence for job in ended for sentence in failures(job))
        if queue.running:
            continue
        if failed:
            return list(failed)
        if len(left) == at_submission:
            return [f"the jobs ended and wrote none of {_count(len(left), 'run')}: see {logs}"]
        jobs, at_submission = min(jobs, len(left)), len(left)
        try:
            queue.submit(jobs)
        except UsageError as error:
            return [f"the jobs have ended and {_count(len(left), 'run')} are left: {error}; see {logs}"]
        display.say(f"the jobs have ended and {_count(len(left), 'run')} are left; {_count(jobs, 'job')} submitted")


@contextmanager
def _stopped(queue: Queue) -> Iterator[None]:
    """No job outlives the block: those that are left at its end have nothing to do."""
    try:
        yield
    finally:
        queue.stop()


def _resolved(stage: Stage | None) -> Stage | None:
    """With paths that mean the same in the folder of a job."""
    return stage and replace(stage, results=stage.results.resolve(), tuning=stage.tuning.resolve())


def _remove(logs: Path) -> None:
    shutil.rmtree(logs, ignore_errors=True)
    with suppress(OSError):  # another command has jobs
        logs.parent.rmdir()


def _executor(engine: Engine, manner: Manner, logs: Path) -> Any:
    """submitit's, for these options. Raises UsageError where SLURM is not here, or knows no such option."""
    if missing := [name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]:
        raise UsageError(f"SLURM is not on this machine, since {', '.join(missing)} cannot be found: use --executor local")
    executor = submitit.SlurmExecutor(logs / "%j", max_num_timeout=MOST_REQUEUES)
    minutes = engine.time or MINUTES
    environ = [f"export {name}={value}" for name, value in ONE_THREAD.items()]
    options: dict[str, Any] = {
        "job_name": "lgbench",
        "time": minutes,
        "cpus_per_task": manner.workers,
        "setup": environ,
        "signal_delay_s": min(WARNING_SECONDS, 15 * minutes),
        "wckey": None,
    }
    if manner.device.startswith("cuda"):
        options["gpus_per_node"] = 1
    if engine.slurm_partition is not None:
        options["partition"] = engine.slurm_partition
    own = {name.replace("_", "-"): value for name, value in engine.slurm_options}
    executor.update_parameters(**options, additional_parameters=own)
    return executor


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
