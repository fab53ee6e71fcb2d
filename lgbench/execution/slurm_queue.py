"""The jobs that a command has in SLURM's queue: it submits them by submitit, asks how they are, and stops them."""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from submitit.core.utils import FailedJobError, FailedSubmissionError

from lgbench.errors import UsageError, first_line

STOP_SECONDS = 10.0
"""After so long a job that was interrupted is cancelled."""


@dataclass
class Queue:
    """The jobs of one command."""

    executor: Any
    """submitit's."""
    job: Callable[[], list[str]]
    """The function that each job runs. It returns a sentence for each population that failed."""
    running: list[Any] = field(default_factory=list)
    """Jobs of submitit that have not ended."""

    def submit(self, number: int) -> None:
        try:
            with self.executor.batch():
                jobs = [self.executor.submit(self.job) for _ in range(number)]
            self.running += jobs
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError, OSError) as error:
            raise UsageError(f"SLURM does not take the jobs: {_reason(error)}") from error

    def ended(self) -> list[Any]:
        """The jobs that have ended since this was last asked."""
        states = _states()
        if states is None:
            return []
        ended = [job for job in self.running if job.job_id not in states]
        self.running = [job for job in self.running if job.job_id in states]
        return ended

    def stop(self) -> None:
        """Interrupt all jobs, so that they give back what they have, and cancel those that do not end."""
        ids = [str(job.job_id) for job in self.running]
        if not ids:
            return
        with suppress(KeyboardInterrupt):  # of a user who presses Ctrl-C once more
            _ask("scancel", "--signal=INT", "--state=RUNNING", *ids)
            latest = time.monotonic() + STOP_SECONDS
            while "RUNNING" in {(_states() or {}).get(each) for each in ids} and time.monotonic() < latest:
                time.sleep(0.5)
        _ask("scancel", *ids)
        self.running = []


def failures(job: Any) -> list[str]:
    """The failures of a job that has ended, in sentences. A job that somebody cancelled, or that was killed, reports none."""
    try:
        outcome, result = pickle.loads(job.paths.result_pickle.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return []
    if outcome == "success":
        return list(result)
    return [f"job {job.job_id} failed: {str(result).strip().splitlines()[-1]}"]


def _states() -> Mapping[str, str] | None:
    """The states of this user's jobs by their ids; None where SLURM does not answer now."""
    answer = _ask("squeue", "--noheader", "--array", "--format=%i %T", f"--user={os.getuid()}")
    if answer is None:
        return None
    return dict(line.split() for line in answer.splitlines() if len(line.split()) == 2)


def _ask(*command: str) -> str | None:
    """The output of a command of SLURM; None where the command fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _reason(error: Exception) -> str:
    """The error message of sbatch, or the first line of the error where there is none."""
    lines = [line for line in str(error).splitlines() if "sbatch: error:" in line]
    return lines[-1].partition("sbatch: error:")[2].strip() if lines else first_line(error)
