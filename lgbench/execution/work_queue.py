"""The work queue of a results folder: each process takes runs that no other process has, or continues those of a killed one.

A population in training is a folder under `.unfinished`: a lock that its process holds, the ids of its runs, and the latest
checkpoint. The operating system releases the locks of a killed process, so anybody may take a folder whose lock is free.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from filelock import FileLock, Timeout

from lgbench.atomic_files import replaced
from lgbench.experiment.experiment import Experiment

UNFINISHED = ".unfinished"
RECORD = "population.json"

MadeBy = Callable[[Sequence[Experiment]], Mapping[str, str]]
"""From the members of a population to the versions that take part in their training."""


@dataclass(frozen=True)
class Claim:
    """A population that this process alone trains. A context manager: its end removes the folder and releases the lock.

    After an interrupt the folder stays if it has a checkpoint, or if some runs are written: with it the same command ends with
    the same numbers, for it trains the same models together. After success and failure nothing stays.
    """

    experiments: list[Experiment]
    folder: Path
    lock: FileLock

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        with _exclusive(self.folder.parent):
            results = self.folder.parent.parent
            begun = self.checkpoint.exists() or any(_finished(results, e.run_id) for e in self.experiments)
            if not (interrupted and begun):
                shutil.rmtree(self.folder)
            self.lock.release()


class _Record(NamedTuple):
    """The record in a population's folder."""

    runs: list[str]
    made_by: dict[str, str]


class _Abandoned(NamedTuple):
    """A population of a killed process. This process holds its lock now."""

    folder: Path
    lock: FileLock
    record: _Record


class WorkQueue:
    """The unfinished runs of one command, and the claims of all processes on runs of its results folder."""

    def __init__(self, results: Path, paths: Mapping[Experiment, Path]) -> None:
        """`paths`: the path of each run's file."""
        self.results, self.folder = results, results / UNFINISHED
        self.paths = paths
        self._by_id = {experiment.run_id: experiment for experiment in paths}

    def unfinished(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """The experiments that have no run file yet."""
        return [experiment for experiment in experiments if not self.paths[experiment].exists()]

    def clear(self) -> None:
        """Remove the folders that killed processes left of finished populations."""
        if self.folder.exists() or _lock_of(self.folder).exists():
            with _exclusive(self.folder), self._others():
                pass

    def take(self, group: Sequence[Experiment], most: int, made_by: MadeBy) -> Claim | None:
        """A population of at most `most` runs of `group` that are neither finished nor another process's; None if none is left.

        The population of a killed process comes first, with the same members, if this command asks for all of them and the
        versions that take part, which `made_by` gives, have not changed.
        """
        wanted = {experiment.run_id for experiment in group}
        with _exclusive(self.folder):
            with self._others() as (busy, abandoned):
                for left in abandoned:
                    runs, by = left.record
                    members = [self._by_id[run] for run in runs if run in self._by_id]
                    asked_for = len(members) == len(runs) and not wanted.isdisjoint(runs)
                    free = busy.isdisjoint(experiment.run_id for experiment in self.unfinished(members))
                    if asked_for and free and by == made_by(members):
                        abandoned.remove(left)
                        return Claim(members, left.folder, left.lock)
            fresh = [experiment for experiment in self.unfinished(group) if experiment.run_id not in busy]
            part = _first_part(fresh, most) if fresh else []
            return self._make(part, made_by(part)) if part else None

    @contextmanager
    def _others(self) -> Iterator[tuple[set[str], list[_Abandoned]]]:
        """The runs that other processes are training, and the populations of killed processes.

        The latter are locked, and released at the end if they are still in the list. A folder without a usable record is
        removed, because nobody can continue it; one that a process holds stays, though its runs are unknown.
        """
        busy: set[str] = set()
        abandoned: list[_Abandoned] = []
        for folder in sorted(path for path in self.folder.iterdir() if path.is_dir()):
            record, lock = _record(folder), _locked(folder)
            if not lock:
                busy |= set(record.runs if record else ())
            elif record and not all(_finished(self.results, run) for run in record.runs):
                abandoned.append(_Abandoned(folder, lock, record))
            else:
                shutil.rmtree(folder)
                lock.release()
        try:
            yield busy, abandoned
        finally:
            for left in abandoned:
                left.lock.release()

    def _make(self, experiments: list[Experiment], made_by: Mapping[str, str]) -> Claim | None:
        """None where another process holds the folder of just these runs, without a usable record."""
        runs = [experiment.run_id for experiment in experiments]
        folder = self.folder / hashlib.sha256(" ".join(runs).encode()).hexdigest()[:16]
        if folder.exists():
            before = _locked(folder)
            if not before:
                return None
            shutil.rmtree(folder)  # nobody can continue it
            before.release()
        folder.mkdir()
        lock = _lock_in(folder)
        lock.acquire()
        _write_record(folder, _Record(runs, dict(made_by)))
        return Claim(experiments, folder, lock)


def _record(folder: Path) -> _Record | None:
    """None where there is no record of the form that :func:`_write_record` writes."""
    try:
        about = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if not isinstance(about, dict) or about.keys() != set(_Record._fields):
        return None
    record = _Record(**about)
    if not isinstance(record.runs, list) or not isinstance(record.made_by, dict):
        return None
    return record if all(isinstance(text, str) for text in (*record.runs, *record.made_by.values())) else None


def _write_record(folder: Path, record: _Record) -> None:
    with replaced(folder / RECORD) as partial:
        partial.write_text(json.dumps(record._asdict()), encoding="utf-8")


def _locked(folder: Path) -> FileLock | None:
    """The lock of a population's folder, which this process now holds; None where another process holds it."""
    lock = _lock_in(folder)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def _lock_in(folder: Path) -> FileLock:
    """The lock of a population's folder, which is not waited for. An executor may release it in another thread."""
    return FileLock(folder / "lock", timeout=0, thread_local=False)


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Inside, no other process reads or changes claims. At the end the folder is removed if it is empty."""
    with FileLock(_lock_of(folder)):
        folder.mkdir(exist_ok=True)
        try:
            yield
        finally:
            if not any(folder.iterdir()):
                folder.rmdir()
                _lock_of(folder).unlink()  # a waiting process sees that it is gone, and makes a new one


def _finished(results: Path, run_id: str) -> bool:
    """Whether the run has a file, of this command or of another one."""
    return any(results.glob(f"*.{run_id}.parquet"))


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _first_part(experiments: list[Experiment], most: int) -> list[Experiment]:
    """The first part, if the experiments are divided into as few equal parts as possible, of at most `most` members each."""
    parts = -(-len(experiments) // most)
    return experiments[: -(-len(experiments) // parts)]
