"""Filing run files all together, by one process at a time, such that a killed submission is finished by the next one.

A process writes all files into a hidden folder first. When that is whole it gets another name, and from then on the submission
counts: its files get their names among the filed runs one by one, and whoever submits next finishes them if the process is
killed in between. Before, a killed submission has filed nothing, and whoever submits next removes the folder.

The process holds the folder by a lease, as a process that trains holds a population, and a marker that one process can make
says whose turn it is. A filed run is never replaced, whoever believes that it is their turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

from lgbench.errors import RunFileError
from lgbench.execution import lease
from lgbench.execution.lease import Lease
from lgbench.execution.markers import MARKERS, Markers
from lgbench.results import run_files
from lgbench.submissions.inspection import Run

FOLDER = ".submission"
"""The hidden folder in the folder of the leaderboards. It is there while somebody submits, or after a submission was killed."""
LOOK_SECONDS = 0.2
"""Between two looks whether another process has ended its turn."""
_TURN = "turn"
"""The name of the marker."""
_WHOLE = "whole-"
"""The name of a folder with all files of a submission begins so."""


class Turn:
    """The right to file runs, which one process has at a time. See :func:`turn`."""

    def __init__(self, held: Lease, markers: Markers) -> None:
        self._held, self._markers = held, markers
        self.killed = sorted(held.folder.glob(f"{_WHOLE}*/*.parquet"))
        """The files of submissions that were whole when their process was killed. All or some of them are filed."""

    def file(self, runs: Sequence[Run], folder: Path) -> list[Path]:
        """File all runs in `folder`, written anew from what was checked; after an error or Ctrl-C, none of them.

        Where this process is killed, or where the disk lets it neither go on nor back, the next process finishes.
        """
        whole = self._written(runs)
        made = not folder.exists()
        staged = sorted(whole.glob("*.parquet"))
        free = [path for path in staged if not os.path.lexists(folder / path.name)]
        try:
            folder.mkdir(exist_ok=True)
            for path in staged:
                self._held.require()
                _give_name(path, folder / path.name)
        except BaseException as error:
            self._held.require()  # of what another process has taken over, nothing is taken back
            try:
                _take_back(free, folder)
                self._forget(whole)
            except OSError as second:
                raise RunFileError(
                    f"this submission is not finished, and some of its runs are filed: {error}; then {second}. Put the disk "
                    "right and submit again, which files the rest"
                ) from error
            if made:
                with suppress(OSError):
                    folder.rmdir()
            raise
        return [folder / path.name for path in staged]

    def finished(self) -> None:
        """Forget the submissions of killed processes, all of whose runs are filed now, and this one."""
        for whole in self._held.folder.glob(f"{_WHOLE}*"):
            self._forget(whole)

    def end(self) -> None:
        """Let others have their turn. A submission that is not finished stays, for the next process."""
        if any(self._held.folder.glob(f"{_WHOLE}*")):
            self._held.park()
            return
        self._markers.give_back(self._held, [_TURN])
        self._held.remove()
        for folder in (self._markers.folder, self._markers.folder.parent):
            with suppress(OSError):  # another process waits for its turn
                folder.rmdir()

    def _written(self, runs: Sequence[Run]) -> Path:
        """A folder with the files of these runs, whole. Once it is there, they get filed even if this process is killed."""
        staged = self._held.folder / f"staged-{uuid4().hex}"
        staged.mkdir()
        for run in runs:
            run_files.write(run_files.path_for(staged, run.footer.experiment), run.rows, asdict(run.footer))
        return staged.rename(self._held.folder / f"{_WHOLE}{uuid4().hex}")

    def _forget(self, whole: Path) -> None:
        """What is left of it goes with the folder of the lease."""
        whole.rename(whole.with_name(f"forgotten-{uuid4().hex}"))


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


def _give_name(staged: Path, final: Path) -> None:
    """Give a file its name among the filed runs. Raises RunFileError where another file has it; that one stays as it is."""
    try:
        os.link(staged, final)
    except OSError:
        if not os.path.lexists(final):
            staged.rename(final)  # this file system has no hard links; where there is another reason, this fails too
        elif final.is_symlink() or not final.is_file() or final.read_bytes() != staged.read_bytes():
            raise RunFileError(f"nothing was filed: another file is at {final} already; move it away") from None


def _take_back(staged: Sequence[Path], final: Path) -> None:
    """Take the names back from those files that have one, and that nobody else filed."""
    for path in staged:
        place = final / path.name
        if not path.exists():
            place.rename(path)  # see :func:`_give_name`
        elif place.exists() and os.path.samefile(path, place):
            place.unlink()
