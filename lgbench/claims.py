"""Who trains what: processes that share a results folder take what nobody has, and go on with what a killed one left.

A population in training is a folder under `.unfinished`: a lock that its process holds, the ids of its runs, and the latest
checkpoint. An operating system gives back the locks of a process that was killed, so a folder without one is free to take.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from lgbench.experiment import Experiment

UNFINISHED = ".unfinished"
RECORD = "population.json"


@dataclass(frozen=True)
class Claim:
    """A population that this process, and no other, trains. A context manager: what is left on the way out is cleared.

    An interrupted training keeps its checkpoint; everything else, failures included, leaves nothing.
    """

    experiments: list[Experiment]
    folder: Path
    lock: FileLock
    resumed: bool

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        with _exclusive(self.folder.parent):
            if not (interrupted and self.checkpoint.exists()):
                shutil.rmtree(self.folder)
            self.lock.release()


class Claims:
    """The claims on runs of one results folder."""

    def __init__(self, results: Path, paths: Mapping[Experiment, Path]) -> None:
        """`paths`: where the file of every run of this command will be."""
        self.folder = results / UNFINISHED
        self.paths = paths
        self._by_id = {experiment.run_id: experiment for experiment in paths}

    def unfinished(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """Those that have no file yet."""
        return [experiment for experiment in experiments if not self.paths[experiment].exists()]

    def take(self, group: Sequence[Experiment], most: int, made_by: Mapping[str, str]) -> Claim | None:
        """A population of at most `most` runs of `group` that are neither finished nor another process's, None if none is left.

        What a killed process was training comes first, as it was, if this command asks for all of it and `made_by`, the
        versions that took part, is what it was.
        """
        with _exclusive(self.folder):
            wanted = {experiment.run_id for experiment in group}
            busy: set[str] = set()
            abandoned: list[tuple[FileLock, Path, list[str]]] = []
            for folder in sorted(path for path in self.folder.iterdir() if path.is_dir()):
                if not (folder / RECORD).exists():
                    shutil.rmtree(folder)  # killed while it was made, and nobody else makes one now
                    continue
                about = json.loads((folder / RECORD).read_text(encoding="utf-8"))
                lock = FileLock(folder / "lock", timeout=0)
                try:
                    lock.acquire()
                except Timeout:
                    busy |= set(about["runs"])
                    continue
                if about["made_by"] == made_by and not wanted.isdisjoint(about["runs"]):
                    abandoned.append((lock, folder, about["runs"]))
                else:
                    self._leave(lock, folder, about["runs"])
            claim = None
            for lock, folder, runs in abandoned:
                members = [self._by_id[run] for run in runs if run in self._by_id]
                left = {experiment.run_id for experiment in self.unfinished(members)}
                if claim or len(members) < len(runs) or not left or left & busy:
                    self._leave(lock, folder, runs)
                else:
                    claim = Claim(members, folder, lock, resumed=True)
            if claim:
                return claim
            free = [experiment for experiment in self.unfinished(group) if experiment.run_id not in busy]
            return self._fresh(_first_part(free, most), made_by) if free else None

    def _fresh(self, experiments: list[Experiment], made_by: Mapping[str, str]) -> Claim:
        runs = [experiment.run_id for experiment in experiments]
        folder = self.folder / hashlib.sha256(" ".join(runs).encode()).hexdigest()[:16]
        shutil.rmtree(folder, ignore_errors=True)  # a killed one that cannot be gone on with
        folder.mkdir()
        lock = FileLock(folder / "lock", timeout=0)
        lock.acquire()
        partial = folder / f"{RECORD}.partial"
        partial.write_text(json.dumps({"runs": runs, "made_by": dict(made_by)}), encoding="utf-8")
        partial.rename(folder / RECORD)
        return Claim(experiments, folder, lock, resumed=False)

    def _leave(self, lock: FileLock, folder: Path, runs: Collection[str]) -> None:
        """Leave an abandoned population for the command that began it, unless all its runs are finished by now."""
        if all(run in self._by_id and self.paths[self._by_id[run]].exists() for run in runs):
            shutil.rmtree(folder)
        lock.release()


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Inside, no other process looks at or changes who has what. Where nobody has anything, nothing is left at the end."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    with lock:
        folder.mkdir(exist_ok=True)
        try:
            yield
        finally:
            if not any(folder.iterdir()):
                folder.rmdir()
                Path(lock.lock_file).unlink()  # whoever waits for it sees that it is gone, and makes a new one


def _first_part(experiments: list[Experiment], most: int) -> list[Experiment]:
    """The first of as few parts, as equal as can be, as have at most `most` members."""
    parts = -(-len(experiments) // most)
    return experiments[: -(-len(experiments) // parts)]
