"""Submissions that are killed, interrupted or refused by the disk at any moment, and several at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import contextmanager
from errno import ENOSPC, ENOTSUP, EROFS
from pathlib import Path

import published
import pytest
from packing import packed
from published import forged
from warm import Process, Warm

from lgbench.errors import Interrupted, RunFileError
from lgbench.execution import lease
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.submissions import filing
from lgbench.submissions.submission import check_filed, submit

TESTS = Path(__file__).parent
WITH_TOYS = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import published
from lgbench.extensions.registry import Registry
found = published.registry()
Registry.load = classmethod(lambda cls, files=(): found)
"""
SUBMITS = WITH_TOYS + "from lgbench.cli.main import main; main(prog_name='lgbench')"
CRASHES = (
    WITH_TOYS
    + """
import os, signal
import lgbench.submissions.submission
from lgbench.cli.main import main
CHANGES = {{"os.mkdir", "os.symlink", "os.link", "os.rename", "os.remove", "os.rmdir", "os.truncate"}}
left = iter(range({point}))

def watch(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    writes = writes and "heartbeat" not in str(arguments[0])  # a thread writes those, at any moment
    if (writes or event in CHANGES) and next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
main(prog_name="lgbench")
"""
)
"""Is killed when it is about to change the disk, `point` changes after the first."""


@pytest.fixture(scope="module")
def installed() -> Registry:
    return published.registry()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    return published.make(tmp_path_factory.mktemp("made"), tasks=["alone"])


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> list[Path]:
    """Runs of another entry, on another family."""
    return published.make(tmp_path_factory.mktemp("other"), tasks=["small"])


@pytest.fixture
def board(tmp_path) -> Path:
    folder = tmp_path / "leaderboards"
    folder.mkdir()
    return folder


def content(board: Path) -> dict[str, bytes | None]:
    """Everything in a folder, hidden or not."""
    return {str(path.relative_to(board)): path.read_bytes() if path.is_file() else None for path in board.rglob("*")}


def whole(board: Path, *given: list[Path]) -> dict[str, bytes | None]:
    """The content of the folder after these were filed, each in a submission of its own."""
    return {"runs": None, **{f"runs/{name}": data for name, data in map(packed, given)}}


def crashed(warm: Warm, made: Sequence[Path], board: Path, point: int) -> bool:
    """Whether the submission was killed at this point; False where it ended before."""
    with warm.start(["submit", *made, "--to", board], CRASHES.format(point=point)) as process:
        _, error = process.communicate(timeout=60)
        assert process.returncode in (0, -9), error
        return process.returncode == -9


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
def test_wherever_a_submission_is_killed_it_has_filed_all_or_nothing(made, board, warm, installed, first):
    """At every change of the disk: every fourth in each of these tests."""
    point, found = first, set()
    while crashed(warm, made, board, point):
        filed = {name: data for name, data in content(board).items() if name.startswith("runs")}
        assert filed in ({}, {"runs": None}, whole(board, made)), point
        found.add(len(filed))
        assert (board / ".submission").exists() == bool(check_filed(board, installed)), point
        submit(made, board, installed)
        assert content(board) == whole(board, made) and check_filed(board, installed) == [], point
        shutil.rmtree(board / "runs")
        point += 4
    assert point > 12 and 0 in found


@contextmanager
def failing(name: str, after: int, error: BaseException):
    """In the module that files: after so many calls that succeed, a function of os fails."""
    original, left = getattr(os, name), iter(range(after))

    def call(*arguments, **options):
        if "runs" in Path(arguments[-1]).parts and next(left, None) is None:
            raise error
        return original(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, call)
        yield


@pytest.mark.parametrize("code", [ENOSPC, EROFS])
def test_a_disk_that_takes_no_more_gets_nothing(made, board, installed, code):
    error = OSError(code, os.strerror(code))
    sentence = f"nothing was filed: cannot write to .*: {os.strerror(code)}"
    with failing("link", 0, error), failing("rename", 0, error), pytest.raises(RunFileError, match=sentence):
        submit(made, board, installed)
    assert content(board) == {}


def test_a_file_system_without_hard_links_takes_a_submission(made, board, installed):
    with failing("link", 0, OSError(ENOTSUP, os.strerror(ENOTSUP))):
        assert submit(made, board, installed).filed == 5
    assert content(board) == whole(board, made)


def test_a_disk_that_is_full_from_the_start_gets_nothing(made, board, installed, monkeypatch):
    def full(*arguments, **options):
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(RunFileError, match="nothing was filed: cannot write to .*No space left"):
        submit(made, board, installed)
    assert content(board) == {}


def test_ctrl_c_before_the_file_has_its_name_files_nothing(made, board, installed):
    with failing("link", 0, KeyboardInterrupt()), pytest.raises(Interrupted, match="nothing was filed"):
        submit(made, board, installed)
    assert content(board) == {}


def test_ctrl_c_afterwards_says_that_all_are_filed(made, board, installed, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(filing.Turn, "end", interrupted)
    with pytest.raises(Interrupted, match="all runs were filed before"):
        submit(made, board, installed)
    shutil.rmtree(board / ".submission")
    monkeypatch.undo()
    done = submit(made, board, installed)
    assert (done.file, done.filed, done.before) == (None, 0, 5) and content(board) == whole(board, made)


def test_a_file_that_is_there_is_never_replaced(made, board, installed):
    """As from a process on a machine that sees no other one."""
    name, _ = packed(made)

    def first_another(path):
        (board / "runs").mkdir(exist_ok=True)
        path.write_bytes(b"another process's")
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filing.os.path, "lexists", lambda path: path == board / "runs" / name and not first_another(path))
        with pytest.raises(RunFileError, match="nothing was filed: another file is at"):
            submit(made, board, installed)
    assert content(board) == {"runs": None, f"runs/{name}": b"another process's"}


def finished(process: Process) -> tuple[int, str]:
    out, error = process.communicate(timeout=100)
    return process.returncode or 0, out + error


@pytest.mark.slow
def test_of_two_submissions_at_once_one_waits_for_the_other(made, other, board, warm, installed):
    """Both have the same runs, and one has more."""
    with (
        warm.start(["submit", *made, "--to", board], SUBMITS) as one,
        warm.start(["submit", *made, *other, "--to", board], SUBMITS) as two,
    ):
        ends = [finished(process) for process in (one, two)]
    assert [code for code, _ in ends] == [0, 0], ends
    assert check_filed(board, installed) == []
    assert sum(len(run_files.footers(path)) for path in (board / "runs").iterdir()) == len(made) + len(other)


@pytest.mark.slow
def test_different_runs_of_one_seed_are_never_filed_both(made, board, tmp_path, warm, installed):
    forged_runs = [forged(path, tmp_path / "forged" / path.name, lambda f: f["seconds"].update(train=0.25)) for path in made]
    with (
        warm.start(["submit", *made, "--to", board], SUBMITS) as one,
        warm.start(["submit", *forged_runs, "--to", board], SUBMITS) as two,
    ):
        ends = [finished(process) for process in (one, two)]
    assert sorted(code for code, _ in ends) == [0, 1] and "is a run already" in "".join(said for _, said in ends)
    assert content(board) in (whole(board, made), whole(board, forged_runs)) and check_filed(board, installed) == []


def test_a_submission_waits_for_a_live_one_and_takes_over_from_a_stopped_one(made, board, installed, monkeypatch):
    """The other one is this very process, whose heart is stopped."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    said: list[str] = []
    monkeypatch.setattr(lease.Lease, "_keep_beating", lambda self: None)
    with filing.turn(board, said.append) as frozen:
        done = submit(made, board, installed, said.append)
        assert said == [f"another process files runs in {board}; waiting for it"] and done.filed == 5
        with pytest.raises(OSError):
            frozen.file("other.parquet", b"", board / "runs")
    assert content(board) == whole(board, made)
