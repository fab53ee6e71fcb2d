"""Filing a submission: one process at a time, so that two never file the same run in two files.

A submission is one file, and appears whole. A process that is killed has filed all of its runs or none.

The process holds a hidden folder by a lease, as a process that trains holds a population, and a marker that one process can
make says whose turn it is. A filed run is never replaced, whoever believes that it is their turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lgbench.atomic_files import created
from lgbench.errors import RunFileError
from lgbench.execution import lease
from lgbench.execution.lease import Lease
from lgbench.execution.markers import MARKERS, Markers
from lgbench.results import weights_files

FOLDER = ".submission"
"""The hidden folder in the folder of the leaderboards. It is there while somebody submits, and
after a submission was killed, until the next one."""
LOOK_SECONDS = 0.2
"""Between two looks whether another process has ended its turn."""
_TURN = "turn"
"""The name of the marker."""


class Turn:
    """The right to file runs, which one process has at a time. See :func:`turn`."""

    def __init__(self, held: Lease, markers: Markers) -> None:
        self._held, self._markers = held, markers
        self.place: Path | None = None
        """Where the submission file is, if it is already there."""
        self.added: list[Path] = []
        """The files of weights that this turn has made."""

    def file(self, name: str, content: bytes, folder: Path, weights: Iterable[tuple[str, bytes]] = ()) -> Path:
        """Make a submission file in `folder`, whole, after files of weights. After an error or Ctrl-C there is none of them."""
        path, made = folder / name, not folder.exists()
        before = len(self.added)
        try:
            folder.mkdir(exist_ok=True)
            if os.path.lexists(path):
                raise RunFileError(f"nothing was filed: another file is at {path} already; move it away")
            for own in weights:
                self.add(*own, folder)
            with created(path, self._held.folder) as partial:
                partial.write_bytes(content)
                self._held.require()
                self.place = path
            return path
        except BaseException:
            if not (self.place and os.path.lexists(self.place)):
                for file in self.added[before:]:
                    file.unlink(missing_ok=True)
                del self.added[before:]
            if made:
                with suppress(OSError):
                    folder.rmdir()
            raise

    def add(self, name: str, content: bytes, folder: Path) -> None:
        """Write weights where they are not there yet."""
        path, there = folder / name, (folder / name).exists()
        self._held.require()
        weights_files.write(path, content, self._held.folder)
        if not there:
            self.added.append(path)

    def end(self) -> None:
        """Let others have their turn."""
        self._markers.give_back(self._held, [_TURN])
        self._held.remove()
        for folder in (self._markers.folder, self._markers.folder.parent):
            with suppress(OSError):  # another process waits for its turn
                folder.rmdir()


@contextmanager
def turn(leaderboards: Path, say: Callable[[str], None]) -> Iterator[Turn]:
    """Wait for this process's turn to file runs in a folder of leaderboards. Calls `say` with a sentence if it has to wait."""
    folder = leaderboards / FOLDER
    markers, watch = Markers(folder / MARKERS), lease.Watch()
    held = _own_turn(folder, markers, watch, say)
    mine = Turn(held, markers)
    try:
        _remove_dead(folder, held, watch)
        yield mine
    finally:
        mine.end()


def _own_turn(folder: Path, markers: Markers, watch: lease.Watch, say: Callable[[str], None]) -> Lease:
    """A lease that has the marker: a new one, or that of a process which was killed in its turn."""
    mine, waits = lease.make(folder), False
    try:
        while not markers.take([_TURN], mine):
            if held := _taken_over(folder, markers, watch):
                mine.remove()
                return held
            if not waits:
                say(f"another process files runs in {folder.parent}; waiting for it")
            waits = True
            time.sleep(LOOK_SECONDS)
    except BaseException:
        markers.give_back(mine, [_TURN])
        mine.remove()
        raise
    return mine


def _taken_over(folder: Path, markers: Markers, watch: lease.Watch) -> Lease | None:
    """The lease of the process that has the marker, if that process is dead and no other one takes it."""
    leases = _leases(folder)
    markers.give_back_orphans({lease.name_of(path) for path in leases}, watch)
    owner = markers.taker(_TURN)
    for path in leases:
        if lease.name_of(path) == owner and (lease.is_parked(path) or watch.is_dead(path)):
            return lease.take(path)
    return None


def _remove_dead(folder: Path, own: Lease, watch: lease.Watch) -> None:
    """Remove what killed processes left that waited for their turn."""
    for path in _leases(folder):
        if path != own.folder and (lease.is_parked(path) or watch.is_dead(path)) and (held := lease.take(path)):
            held.remove()
    for path in folder.glob(f"*{lease.GONE}"):
        lease.remove_tree(path)


def _leases(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != MARKERS and not path.name.endswith(lease.GONE))
