"""Submissions that are killed, interrupted or refused by the disk at any moment, and several at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from contextlib import contextmanager
from errno import ENOSPC, EROFS
from pathlib import Path

import published
import pytest
from published import forged
from test_boards import LEADERBOARDS
from test_submission import lgbench
from warm import Process, Warm

from lgbench.errors import Interrupted, Refused, RunFileError
from lgbench.execution import lease
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.submissions import filing, submission
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
    counts = event == "os.link" and "/runs/" in str(arguments[1]) if {links} else writes or event in CHANGES
    if counts and next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
main(prog_name="lgbench")
"""
)
"""Is killed when it is about to change the disk, `point` changes after the first, or to file a run."""


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
    """What the folder holds after these were filed."""
    return {"runs": None, **{f"runs/{path.name}": path.read_bytes() for paths in given for path in paths}}


def crashed(warm: Warm, made: Sequence[Path], board: Path, point: int, links: bool = False) -> bool:
    """Whether the submission was killed at this point; False where it ended before."""
    code = CRASHES.format(point=point, links=links)
    with warm.start(["submit", *made, "--to", board], code) as process:
        _, error = process.communicate(timeout=60)
        assert process.returncode in (0, -9), error
        return process.returncode == -9


@pytest.mark.slow
def test_a_submission_that_is_killed_while_it_files_is_finished_by_the_same_one(made, board, warm, installed):
    assert crashed(warm, made, board, 2, links=True)
    assert len(list((board / "runs").iterdir())) == 2
    said = check_filed(board, installed)
    assert f"{board / '.submission'}: a submission is under way, or was killed" in said[0] and "lacks seeds" in said[1]
    done = lgbench("submit", *made, "--to", board, registry=installed)
    assert done.exit_code == 0 and "a submission was killed before; its 5 runs are among these" in done.stdout
    assert "2 runs filed before" in done.stdout and "3 runs filed in" in done.stdout
    assert content(board) == whole(board, made) and check_filed(board, installed) == []


@pytest.mark.slow
def test_another_submission_finishes_it_too(made, other, board, warm, installed):
    assert crashed(warm, made, board, 4, links=True)
    done = submit(other, board, installed)
    assert len(done.filed) == 11 and len(done.before) == 4 and done.finished == 5
    assert content(board) == whole(board, made, other) and check_filed(board, installed) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
def test_wherever_a_submission_is_killed_all_or_nothing_of_it_comes_to_count(made, board, warm, installed, first):
    """At every change of the disk: every fourth in each of these tests."""
    point = first
    while crashed(warm, made, board, point):
        begun = bool(list(board.glob(".submission/*/whole-*")))
        filed = list((board / "runs").glob("*"))
        assert begun or len(filed) in (0, len(made)), point
        submit(made, board, installed)
        assert content(board) == whole(board, made), point
        shutil.rmtree(board / "runs")
        point += 4
    assert point > 30


@pytest.mark.slow
def test_what_a_killed_submission_left_is_looked_at_as_anything_that_is_given(made, board, warm, installed):
    """Somebody might commit such a folder."""
    assert crashed(warm, made, board, 2, links=True)
    staged = sorted(board.glob(".submission/*/whole-*/*.parquet"))
    bad = staged[3]
    rows = run_files.read(bad).to_pylist()
    rows[0]["value"] = 7.0
    about = run_files.metadata(bad)
    bad.unlink()
    run_files.write(bad, run_files.read(staged[0]).from_pylist(rows, schema=run_files.SCHEMA), about)
    before = content(board)
    with pytest.raises(Refused) as refused:
        submit(made, board, installed)
    assert any(bad.name in said and f"remove {board / '.submission'}" in said for said in refused.value.sentences)
    kept = {name: data for name, data in content(board).items() if name.startswith("runs")}
    assert kept == {name: data for name, data in before.items() if name.startswith("runs")}
    shutil.rmtree(board / ".submission")
    assert len(submit(made, board, installed).filed) == 3 and content(board) == whole(board, made)


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


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("code", [ENOSPC, EROFS])
def test_a_disk_that_takes_no_more_gets_nothing_half_filed(made, board, installed, links, code):
    """With hard links, and on a file system that has none, where files are renamed."""
    error = OSError(code, os.strerror(code))
    sentence = f"nothing was filed: cannot write to .*: {os.strerror(code)}"
    with (
        failing("link", 3 if links else 0, error),
        failing("rename", 0 if links else 3, error),
        pytest.raises(RunFileError, match=sentence),
    ):
        submit(made, board, installed)
    assert content(board) == {}
    with failing("link", 99 if links else 0, error):
        assert len(submit(made, board, installed).filed) == 5
    assert content(board) == whole(board, made)


def test_a_disk_that_is_full_from_the_start_gets_nothing(made, board, installed, monkeypatch):
    def full(*arguments, **options):
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(RunFileError, match="nothing was filed: cannot write to .*No space left"):
        submit(made, board, installed)
    assert content(board) == {}


def test_ctrl_c_while_runs_are_filed_takes_them_back(made, board, installed):
    with failing("link", 3, KeyboardInterrupt()), pytest.raises(Interrupted, match="nothing was filed"):
        submit(made, board, installed)
    assert content(board) == {}


def test_ctrl_c_after_the_last_run_says_that_all_are_filed(made, board, installed, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(filing.Turn, "finished", interrupted)
    with pytest.raises(Interrupted, match="all runs were filed before"):
        submit(made, board, installed)
    monkeypatch.undo()
    assert submit(made, board, installed).filed == [] and content(board) == whole(board, made)


def test_where_the_disk_lets_nothing_be_taken_back_the_next_submission_goes_on(made, board, installed):
    stuck = OSError(EROFS, os.strerror(EROFS))
    sentence = "not finished, and some of its runs are filed.*submit again"
    with (
        failing("link", 3, stuck),
        failing("rename", 0, stuck),
        failing("unlink", 0, stuck),
        pytest.raises(RunFileError, match=sentence),
    ):
        submit(made, board, installed)
    assert len(list((board / "runs").iterdir())) == 3
    done = submit(made, board, installed)
    assert (len(done.filed), len(done.before), done.finished) == (2, 3, 5) and content(board) == whole(board, made)


def test_a_file_that_came_in_between_is_never_replaced(made, board, installed):
    """As from a process on a machine that sees no other one."""
    link, calls = os.link, []

    def first_another(source, target):
        if "runs" in Path(target).parts and not calls:
            calls.append(target)
            Path(target).write_bytes(b"another process's")
        link(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filing.os, "link", first_another)
        with pytest.raises(RunFileError, match="nothing was filed: another file is at"):
            submit(made, board, installed)
    assert content(board) == {"runs": None, f"runs/{Path(calls[0]).name}": b"another process's"}


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
    assert content(board) == whole(board, made, other) and check_filed(board, installed) == []


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
        assert said == [f"another process files runs in {board}; waiting for it"] and len(done.filed) == 5
        with pytest.raises(OSError):
            frozen.file([], board / "runs")
    assert content(board) == whole(board, made)


def test_boards_are_not_written_while_a_submission_is_not_finished(board, monkeypatch):
    spec = importlib.util.spec_from_file_location("generate", LEADERBOARDS / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    (board / submission.FOLDER).mkdir()
    monkeypatch.setattr(generate, "HERE", board)
    with pytest.raises(SystemExit, match="a submission is under way, or was killed"):
        generate.main()
