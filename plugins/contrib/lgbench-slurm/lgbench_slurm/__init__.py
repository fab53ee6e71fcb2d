"""An executor for lgbench: each population is a job of SLURM.

submitit writes the job scripts, and puts a job back into the queue when its time is nearly over. The job then continues from
its checkpoint in the results folder, which all nodes must see.
"""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from lgbench import Demand, Executor, Pool, UsageError, hookimpl
from lgbench.errors import first_line

PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
MOST_REQUEUES = 10_000
"""Limit for a job whose time is over. Each time it gets further, so nothing needs to stop it."""
MOST_SUBMISSIONS = 20
"""Limit for a job that was cancelled, or whose node died."""
WARNING_SECONDS = 90
"""Longest time before the end of a job at which it stops."""
LOOK_SECONDS = 2.0
"""Time between two questions to SLURM's queue."""
AGAIN = {"CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED"}
"""States of jobs that ended for no fault of their own."""


@dataclass(frozen=True)
class Slurm(Executor):
    """Jobs of SLURM, one for each population. Needs a results folder that all nodes see.

    partition: of the jobs; by default the cluster's. jobs: at the same time, as --workers. time: minutes of a job, which then
    goes back into the queue and later continues. sbatch: other options, as in "mem=8G account=mine gres=gpu:1".
    """

    name = "slurm"

    partition: str | None = None
    jobs: int = 1
    time: int = 60
    sbatch: str = ""

    def __post_init__(self) -> None:
        for name, least in (("jobs", self.jobs), ("time", self.time)):
            if least < 1:
                raise UsageError(f"the option {name} of the executor slurm is {least}, expected at least 1")

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Pool]:
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise UsageError(f"SLURM is not on this machine, since {', '.join(missing)} cannot be found: use --executor local")
        logs = demand.folder / uuid4().hex[:8]
        queue = _Queue(self._submitter(demand, logs), logs)
        try:
            yield Pool(queue.submit, demand.workers or self.jobs)
        finally:
            queue.close()

    def _submitter(self, demand: Demand, logs: Path) -> Any:
        """submitit's executor for these options."""
        import submitit

        executor = submitit.SlurmExecutor(logs / "%j", max_num_timeout=MOST_REQUEUES)
        options: dict[str, Any] = {
            "job_name": "lgbench",
            "time": self.time,
            "cpus_per_task": 1,
            "setup": [f"export {name}={shlex.quote(value)}" for name, value in demand.environ.items()],
            "signal_delay_s": min(WARNING_SECONDS, 15 * self.time),
            "wckey": None,
        }
        if demand.gpu:
            options["gpus_per_node"] = 1
        if self.partition is not None:
            options["partition"] = self.partition
        parted = (option.lstrip("-").partition("=") for option in shlex.split(self.sbatch))
        # With underscores, as submitit names its own, so that an option of the user replaces one of lgbench's.
        own = {name.replace("-", "_"): value if equals else True for name, equals, value in parted}
        executor.update_parameters(**options, additional_parameters=own)
        return executor


@dataclass(frozen=True)
class _Requeued:
    """A function that submitit runs again, after it has put the job back into the queue."""

    function: Callable[[], Any]

    def __call__(self) -> Any:
        return self.function()

    def checkpoint(self) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self)


@dataclass
class _Queue:
    """Jobs of one command."""

    executor: Any
    """submitit's."""
    logs: Path
    failed: bool = False
    """Whether a job failed, whose log is worth keeping."""
    _jobs: list[_Job] = field(default_factory=list)
    _states: Mapping[str, str] = field(default_factory=dict)
    _asked: float = 0.0
    """When SLURM was asked last."""
    _answered: float = 0.0

    def submit(self, function: Callable[[], Any]) -> _Job:
        job = _Job(self, _Requeued(function))
        self._jobs.append(job)
        return job

    def start(self, function: Callable[[], Any]) -> Any:
        """submitit's job. Raises UsageError with the reason of sbatch."""
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        try:
            return self.executor.submit(function)
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError, OSError) as error:
            raise UsageError(f"SLURM does not take the jobs: {_reason(error)}") from error

    def has(self, job: _Job) -> bool:
        """Whether SLURM has a job in its queue, as of some seconds ago."""
        now = time.monotonic()
        if now - self._asked >= LOOK_SECONDS:
            self._asked = now
            answer = _ask("squeue", "--noheader", "--array", "--format=%i %T", f"--user={os.getuid()}")
            if answer is not None:  # SLURM may not answer now
                self._states = dict(line.split() for line in answer.splitlines() if len(line.split()) == 2)
                self._answered = now
        return self._answered <= job.submitted_at or str(job.own.job_id) in self._states

    def close(self) -> None:
        """Cancel what still runs, and remove the files of jobs if none failed."""
        if running := [str(job.own.job_id) for job in self._jobs if not job.has_result]:
            with suppress(KeyboardInterrupt):  # a second Ctrl-C
                _ask("scancel", *running)
        if not self.failed:
            shutil.rmtree(self.logs, ignore_errors=True)
            with suppress(OSError):  # another command has jobs
                self.logs.parent.rmdir()


class _Job:
    """A submitted function."""

    def __init__(self, queue: _Queue, function: Callable[[], Any]) -> None:
        self._queue, self._function, self._left = queue, function, MOST_SUBMISSIONS
        self._submit()

    def _submit(self) -> None:
        self.own, self.submitted_at = self._queue.start(self._function), time.monotonic()
        self._left -= 1

    @property
    def has_result(self) -> bool:
        return bool(self.own.paths.result_pickle.exists())

    def done(self) -> bool:
        """A job that was cancelled, or whose node died, is submitted again."""
        if self._queue.has(self):
            return False
        if not self.has_result and self._left and _state(str(self.own.job_id)) in AGAIN:
            self._submit()
            return False
        return True

    def result(self) -> Any:
        try:
            outcome, result = pickle.loads(self.own.paths.result_pickle.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            outcome, result = "error", f"it ended as {_state(str(self.own.job_id))}"
        self._queue.failed = self._queue.failed or outcome != "success" or getattr(result, "error", None) is not None
        if outcome != "success":
            raise RuntimeError(f"job {self.own.job_id}: {str(result).strip().splitlines()[-1]}; see {self._queue.logs}")
        return result

    def cancel(self) -> None:
        """All jobs are cancelled at once, by :meth:`_Queue.close`."""


def _state(job: str) -> str:
    """State of a job that has left the queue, as long as SLURM remembers it."""
    answer = _ask("scontrol", "--oneliner", "show", "job", job) or ""
    states = [word.partition("=")[2] for word in answer.split() if word.startswith("JobState=")]
    return states[0] if states else "UNKNOWN"


def _ask(*command: str) -> str | None:
    """Output of a command of SLURM; None if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _reason(error: Exception) -> str:
    """The error message of sbatch, or the first line of the error."""
    lines = [line for line in str(error).splitlines() if "sbatch: error:" in line]
    return lines[-1].partition("sbatch: error:")[2].strip() if lines else first_line(error)


@hookimpl
def lgbench_executors() -> list[Executor]:
    return [Slurm()]
