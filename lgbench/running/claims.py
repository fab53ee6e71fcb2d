"""Who trains what: processes that share a results folder take what nobody has, and go on with what a killed one left.

A population in training is a folder under `.unfinished`: a lock that its process holds, the ids of its runs, and the latest
checkpoint. An operating system gives back the locks of a process that was killed, so a folder without one is free to take.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from filelock import FileLock, Timeout

from lgbench.experiment import Experiment

UNFINISHED = ".unfinished"
RECORD = "population.json"


@dataclass(frozen=True)
class Claim:
    """A population that this process, and no other, trains. A context manager: what is left on the way out is cleared.

    An interrupt keeps what the same command needs to end with the same numbers: the checkpoint, and, once runs are written, who
    their models were trained with. Everything else, failures included, leaves nothing.
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
    """What a population's folder says of it."""

    runs: list[str]
    made_by: dict[str, str]


class _Abandoned(NamedTuple):
    """A population of a process that was killed; this process holds its lock now."""

    folder: Path
    lock: FileLock
    record: _Record


class Claims:
    """The claims on runs of one results folder."""

    def __init__(self, results: Path, paths: Mapping[Experiment, Path]) -> None:
        """`paths`: where the file of every run of this command will be."""
        self.results, self.folder = results, results / UNFINISHED
        self.paths = paths
        self._by_id = {experiment.run_id: experiment for experiment in paths}

    def unfinished(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """Those that have no file yet."""
        return [experiment for experiment in experiments if not self.paths[experiment].exists()]

    def clear(self) -> None:
        """Remove what killed processes left of populations that are finished."""
        if self.folder.exists() or _lock_of(self.folder).exists():
            with _exclusive(self.folder), self._others():
                pass

    def take(self, group: Sequence[Experiment], most: int, made_by: Mapping[str, str]) -> Claim | None:
        """A population of at most `most` runs of `group` that are neither finished nor another process's, None if none is left.

        What a killed process was training comes first, as it was, if this command asks for all of it and `made_by`, the
        versions that took part, is what it was.
        """
        wanted = {experiment.run_id for experiment in group}
        with _exclusive(self.folder):
            with self._others() as (busy, abandoned):
                for left in abandoned:
                    runs, by = left.record
                    members = [self._by_id[run] for run in runs if run in self._by_id]
                    asked_for = len(members) == len(runs) and not wanted.isdisjoint(runs)
                    free = busy.isdisjoint(experiment.run_id for experiment in self.unfinished(members))
                    if asked_for and free and by == made_by:
                        abandoned.remove(left)
                        return Claim(members, left.folder, left.lock)
            fresh = [experiment for experiment in self.unfinished(group) if experiment.run_id not in busy]
            return self._make(_first_part(fresh, most), made_by) if fresh else None

    @contextmanager
    def _others(self) -> Iterator[tuple[set[str], list[_Abandoned]]]:
        """The runs that other processes are training, and what killed ones left, locked until the end if still in the list.

        What has no usable record cannot be gone on with and is removed; where a process holds it, it stays, its runs unknown.
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
        """None where a process without a usable record holds the folder, whose name says that it is training just these."""
        runs = [experiment.run_id for experiment in experiments]
        folder = self.folder / hashlib.sha256(" ".join(runs).encode()).hexdigest()[:16]
        if folder.exists():
            before = _locked(folder)
            if not before:
                return None
            shutil.rmtree(folder)  # an abandoned one that cannot be gone on with
            before.release()
        folder.mkdir()
        lock = FileLock(folder / "lock", timeout=0)
        lock.acquire()
        _write_record(folder, _Record(runs, dict(made_by)))
        return Claim(experiments, folder, lock)


def _record(folder: Path) -> _Record | None:
    """None where there is nothing of the form that :func:`_write_record` writes."""
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
    """Whole or not at all, after a power loss too."""
    partial = folder / f"{RECORD}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(record._asdict(), file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(folder / RECORD)


def _locked(folder: Path) -> FileLock | None:
    """The lock of a population's folder, which this process holds from now on; None where another one does."""
    lock = FileLock(folder / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Inside, no other process looks at or changes who has what. Where nobody has anything, nothing is left at the end."""
    with FileLock(_lock_of(folder)):
        folder.mkdir(exist_ok=True)
        try:
            yield
        finally:
            if not any(folder.iterdir()):
                folder.rmdir()
                _lock_of(folder).unlink()  # whoever waits for it sees that it is gone, and makes a new one


def _finished(results: Path, run_id: str) -> bool:
    """Whether there is a file of the run, whoever asked for it."""
    return any(results.glob(f"*.{run_id}.parquet"))


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _first_part(experiments: list[Experiment], most: int) -> list[Experiment]:
    """The first of as few parts, as equal as can be, as have at most `most` members."""
    parts = -(-len(experiments) // most)
    return experiments[: -(-len(experiments) // parts)]
