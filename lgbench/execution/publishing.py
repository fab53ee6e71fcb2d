"""Runs for an address: made in a working folder on this machine, and published from there as they come.

The working folder is the results folder of the command: claims and checkpoints are in it, whatever the executor. It is one
for each address, so commands of this machine share the work; for other machines, see
:mod:`lgbench.execution.address_claims`. Each run file that appears in it becomes an object, where nothing
of its name is. A file that is known to be at the address has a marker. One without is still to be published, by this command
or by the next one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lgbench import user_cache
from lgbench.errors import NoAccess, RunFailed, StorageError
from lgbench.execution.scheduler import path_of
from lgbench.experiment.experiment import Experiment
from lgbench.results import mirror, run_files, weights_files
from lgbench.results.addresses import Address, Place
from lgbench.results.checksums import is_sealed
from lgbench.results.stores import store_of

if TYPE_CHECKING:
    from lgbench.results.objects import Object

WORK = "unpublished"
"""The folder of all working folders in the user's cache folder."""
PUBLISHED = ".published"
"""The folder of markers in a working folder."""
LOOK_SECONDS = 1.0
"""Between two looks for new run files."""
AGAIN_SECONDS = 30.0
"""Before the next try after the server has not answered."""


class WorkingFolder:
    """Where a command makes runs for an address. Raises StorageError where the server does not say what is there."""

    def __init__(self, address: Address, say: Callable[[str], None]) -> None:
        self.address, self.say = address, say
        self.store = store_of(address)
        self.folder = mirror.made(address, WORK)
        self.lost: set[str] = set()
        """Names of runs that another machine has published first."""
        self.failed: dict[str, str] = {}
        """Why files could not be published, by their names."""
        self._markers = self.folder / PUBLISHED
        self._known: set[str] = set()
        """Names of which this process has seen the marker."""

    def bring(self, runs: Mapping[str, str]) -> None:
        """Bring those of these runs that are at the address; `runs` has run ids by names of files.

        Raises NoAccess where an object has a run's name and is no whole file of it: nothing at an address is replaced.
        """
        self._markers.mkdir(exist_ok=True)
        before = self._now()
        objects = self.store.list()
        self._forget(objects, before)
        there = {name: objects[name] for name in runs if name in objects}
        ours = {name for name in there if (self.folder / name).exists() and not self._is_published(name)}
        mirror.bring(self.store, {name: about for name, about in there.items() if name not in ours}, self.folder)
        for name in there.keys() - ours:
            self._mark(name)
        damaged = [name for name in there.keys() - ours if not run_files.is_run(self.folder / name, runs[name])]
        if damaged:
            for name in damaged:
                (self.folder / name).unlink(missing_ok=True)
            others = f" (and {len(damaged) - 1} others)" if len(damaged) > 1 else ""
            named = f"{self.address / sorted(damaged)[0]}{others}"
            raise NoAccess(f"{named} is no whole file of its run, and nothing at an address is replaced: remove it there")

    def bring_done(self, runs: Mapping[str, str]) -> set[str]:
        """Bring those of these runs that other machines have published since; returns the ids of all that are here now."""
        missing = [name for name in runs if not (self.folder / name).exists()]
        with ThreadPoolExecutor(mirror.AT_ONCE, "find") as pool:
            found = dict(zip(missing, pool.map(self.store.find, missing), strict=True))
        mirror.bring(self.store, {name: about for name, about in found.items() if about}, self.folder)
        for name, about in found.items():
            if about and run_files.is_run(self.folder / name, runs[name]):
                self._mark(name)
            elif about:
                (self.folder / name).unlink(missing_ok=True)
        return {run for name, run in runs.items() if run_files.is_run(self.folder / name, run)}

    def publish(self, names: Collection[str] | None = None) -> None:
        """Publish run files that are not at the address yet: all, or those of these names that there are.

        Raises StorageError where the server does not answer.
        """
        for name in self.unpublished():
            if names is None or name in names:
                self._publish(self.folder / name)

    def unpublished(self) -> list[str]:
        """The names of the run files that are not at the address."""
        names = (name for name in os.listdir(self.folder) if name.endswith(".parquet") and not name.startswith("."))
        return sorted(name for name in names if not self._is_published(name))

    def _publish(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # another command has just set it aside
            return
        if (weights := weights_files.name_beside(path)) and not self._publish_weights(path.name, weights):
            return
        if made := self.store.put(path.name, content):
            self._settle(path, made)
        elif found := self.store.get(path.name):
            theirs, about = found
            if theirs == content:
                self._settle(path, about)
            elif is_sealed(theirs):
                mirror.bring(self.store, {path.name: about}, self.folder)
                self._mark(path.name)
                self.lost.add(path.name)
                self.say(f"{path.name} was published by another machine meanwhile: its file stays, and this one is not written")
            else:
                why = "an object of its name is there, which is no whole run file, and nothing at an address is replaced"
                self.failed[path.name] = f"{why}: remove {self.address / path.name}"

    def _publish_weights(self, run: str, name: str) -> bool:
        """Publish the weights of a run before it. False where something else has their name, which keeps the run here."""
        try:
            content = (self.folder / name).read_bytes()
        except FileNotFoundError:  # somebody has removed them, and the run is worth publishing without them
            return True
        if self.store.put(name, content) or ((found := self.store.get(name)) and found[0] == content):
            return True
        why = "an object of the name of its weights is there, which is not their file, and nothing at an address is replaced"
        self.failed[run] = f"{why}: remove {self.address / name}"
        return False

    def _settle(self, path: Path, about: Object) -> None:
        os.utime(path, ns=(time.time_ns(), mirror.stamp(about)))
        self._mark(path.name)
        self.failed.pop(path.name, None)

    def _mark(self, name: str) -> None:
        (self._markers / name).touch()

    def _is_published(self, name: str) -> bool:
        if name not in self._known and (self._markers / name).exists():
            self._known.add(name)
        return name in self._known

    def _forget(self, objects: Mapping[str, Object], before: int) -> None:
        """Remove files that were at the address and are not any more, and those that nobody has used for long."""
        for marker in self._markers.iterdir():
            try:
                marked = marker.stat().st_mtime_ns
            except FileNotFoundError:  # another command does the same
                continue
            gone = marker.name not in objects and marked < before  # else somebody has published it since
            if gone or before - marked > user_cache.KEPT_SECONDS * 1e9:
                for name in [marker.name, *weights_files.of_run(marker.name, os.listdir(self.folder))]:
                    (self.folder / name).unlink(missing_ok=True)
                marker.unlink(missing_ok=True)
                self._known.discard(marker.name)

    def _now(self) -> int:
        """The time of this disk, in nanoseconds."""
        clock = self._markers / f".{os.getpid()}"
        clock.touch()
        try:
            return clock.stat().st_mtime_ns
        finally:
            clock.unlink(missing_ok=True)


class Publisher:
    """Publishes run files from a thread, as they appear in a working folder."""

    def __init__(self, work: WorkingFolder) -> None:
        self.work = work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, name=f"publisher of {work.address}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Publish what is left."""
        self._stop.set()
        self._thread.join()
        self._try()

    def _publish(self) -> None:
        seconds = LOOK_SECONDS
        while not self._stop.wait(seconds):
            seconds = AGAIN_SECONDS if self._try() else LOOK_SECONDS

    def _try(self) -> str | None:
        """Publish what there is. Returns why that failed, which is said once."""
        try:
            self.work.publish()
        except (StorageError, OSError) as error:
            said = f"{self.work.address}: {error.strerror}" if isinstance(error, OSError) else str(error)
            new = said not in self.work.failed.values()
            self.work.failed |= dict.fromkeys(self.work.unpublished(), said)
            if new:
                self.work.say(f"{said}; finished runs are kept in {self.work.folder}")
            return said
        return None


def names_of(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Run ids by names of run files."""
    return {path_of(experiment, Path()).name: experiment.run_id for experiment in experiments}


def folder_of(results: Place, experiments: Sequence[Experiment], say: Callable[[str], None]) -> Path:
    """A folder that has those of these runs that are done, for whoever only looks."""
    if isinstance(results, Path):
        return results
    work = WorkingFolder(results, say)
    work.bring(names_of(experiments))
    return work.folder


@contextmanager
def published(address: Address, experiments: Sequence[Experiment], say: Callable[[str], None]) -> Iterator[WorkingFolder]:
    """A working folder with those of these runs that are done. Runs that appear in it are published until the block ends.

    What cannot be published stays in the folder, and is in `failed` after the block.
    """
    work = WorkingFolder(address, say)
    work.store.require_writable()
    work.bring(names_of(experiments))
    publisher = Publisher(work)
    publisher.start()
    try:
        yield work
    finally:
        publisher.end()


def failures(work: WorkingFolder) -> list[RunFailed]:
    """A sentence for each reason why runs are not at the address."""
    left = set(work.unpublished())
    reasons: dict[str, int] = {}
    for name, why in work.failed.items():
        if name in left:
            reasons[why] = reasons.get(why, 0) + 1
    return [
        RunFailed(
            f"{'1 run is' if count == 1 else f'{count} runs are'} not at {work.address}, since {why}; kept in {work.folder}, "
            "the same command publishes without training"
        )
        for why, count in reasons.items()
    ]
