"""`lgbench submit`: what is filed, what is refused with which reasons, and that all runs are filed or none."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from helpers import published
from helpers.commands import with_plugins
from helpers.filed import check_filed
from helpers.folders import TESTS
from helpers.packing import packed, repacked, together
from helpers.published import forged, put_right
from helpers.warm import dies
from msgspec import structs

from lgbench.errors import Refused, RunFileError, UsageError
from lgbench.results import run_files
from lgbench.results.file_format import SCHEMA
from lgbench.results.leaderboard import Results
from lgbench.results.stored_runs import stored_in, with_rows
from lgbench.submissions.submission import incomplete, submit


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    """Both tasks of a family, seeds 0 to 4."""
    return published.make(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def honest(made) -> Path:
    return next(path for path in made if path.name.startswith("small-even.toy-table+toy-nothing.seed-3"))


@pytest.fixture(scope="module")
def later(tmp_path_factory) -> list[Path]:
    """Seeds 5 to 7."""
    return published.make(tmp_path_factory.mktemp("later"), seeds=[5, 6, 7])


@pytest.fixture
def board(tmp_path) -> Path:
    """A folder of leaderboards."""
    folder = tmp_path / "leaderboards"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def once(made, installed, tmp_path_factory) -> Path:
    """The folder of leaderboards after an honest submission."""
    folder = tmp_path_factory.mktemp("once")
    submit(made, folder, installed)
    return folder


@pytest.fixture
def filled(once, board) -> Path:
    """The same, for this test alone."""
    shutil.copytree(once, board, dirs_exist_ok=True)
    return board


def filed_in(board: Path) -> Path:
    """The only submission file."""
    (path,) = (board / "runs").iterdir()
    return path


def refusals(given, folder, installed) -> list[str]:
    """Why a submission is refused; nothing is written by it."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(Refused) as refused:
        submit(given, folder, installed)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert str(refused.value).startswith("nothing was filed, for ")
    assert all(sentence in str(refused.value) for sentence in refused.value.sentences)
    return list(refused.value.sentences)


def test_honest_runs_are_filed_where_boards_read_them(made, board, installed):
    done = submit([made[0].parent], board, installed)
    assert (done.filed, done.before) == (len(made), 0)
    assert [done.file] == list((board / "runs").iterdir())
    assert Results(board / "runs").boards("tvd") == Results(made[0].parent).boards("tvd")
    assert check_filed(board, installed) == []
    filed = {run.run_id: (run.packed.metadata, rows) for run, rows in with_rows(done.file)}
    assert len(filed) == len(made)
    for path in made:
        metadata, rows = filed[path.name.split(".")[-2]]
        assert metadata == run_files.metadata(path)
        assert repr(rows.to_pylist()) == repr(run_files.read(path).to_pylist())


def test_submissions_at_once_lose_no_run_and_a_run_that_is_filed_twice_counts_once_and_is_told(made, later, board, installed):
    every = [*made, *later]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda paths: submit(paths, board, installed), (made, every, every)))
    boards = Results(board / "runs").boards("tvd", apart=True)
    assert [[row.seeds for row in own.rows] for own in boards] == [[tuple(range(8))] * 2] * 2  # with the averages
    assert all("is a run already" in sentence for sentence in check_filed(board, installed))


def test_what_was_filed_stays_as_it_is_the_second_time(made, filled, installed):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in filled.rglob("*")}
    done = submit(made, filled, installed)
    assert (done.file, done.filed, done.before) == (None, 0, len(made))
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in filled.rglob("*")} == before


def test_a_filed_run_with_other_content_is_refused_and_kept(made, filled, tmp_path, installed):
    """As after a second training, of which somebody likes the numbers better."""
    other = forged(
        made[0], tmp_path / made[0].name, lambda about: about["environment"].update(date="2031-01-01T00:00:00+00:00")
    )
    (said,) = refusals([other, *made[1:]], filled, installed)
    assert "is a run already, in" in said and f"in {filed_in(filled)}, run {made[0].stem}" in said


def test_one_bad_file_among_good_ones_and_nothing_is_written(made, board, tmp_path, installed):
    bad = forged(made[0], tmp_path / "bad.parquet", rows=lambda rows: rows.pop(0))
    (tmp_path / "text.parquet").write_text("no run")
    said = refusals([*made[1:], bad, tmp_path / "text.parquet", tmp_path / "nowhere"], board, installed)
    assert list(board.iterdir()) == []
    assert len(said) == 3 and all(name in sentence for name, sentence in zip(("text.", "nowhere", "bad."), said, strict=True))


def test_nothing_stays_when_writing_fails_midway(made, board, installed, monkeypatch):
    def failing(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(RunFileError, match="nothing was filed: cannot write to .*No space left"):
        submit(made, board, installed)
    assert not list(board.rglob("*.parquet"))


def test_the_folder_of_the_leaderboards_must_be_there(made, tmp_path, installed):
    with pytest.raises(UsageError, match="as in --out leaderboards/"):
        submit(made, tmp_path / "leaderbords", installed)
    assert not (tmp_path / "leaderbords").exists()


def test_runs_are_not_filed_inside_the_folder_of_runs(made, board, installed):
    submit(made, board, installed)
    filed = sorted(board.rglob("*"))
    with pytest.raises(UsageError, match="name the folder above, as in --out leaderboards/"):
        submit(made, board / "runs", installed)
    assert sorted(board.rglob("*")) == filed


def test_a_path_that_is_given_twice_is_one_run_and_a_copy_is_a_duplicate(made, board, tmp_path, installed):
    copy = Path(shutil.copy(made[2], tmp_path / "copy.parquet"))
    (said,) = refusals([*made, copy], board, installed)
    assert str(copy) in said and str(made[2]) in said and "is a run already" in said
    given = [made[0].parent, *made, made[0].parent / ".." / made[0].parent.name]
    assert submit(given, board, installed).filed == len(made)


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ({("small-walk", 2)}, ["toy-table+toy-nothing on small-walk under short/1 lacks seed 2"]),
        ({("small-walk", 0), ("small-even", 4)}, ["small-even under short/1 lacks seed 4", "small-walk under"]),
        ({("small-even", s) for s in range(5)}, ["small-even under short/1 lacks seeds 0 to 4"]),
        ({(t, s) for t in ("small-even", "small-walk") for s in (3, 4)}, ["small-even", "small-walk"]),
    ],
)
def test_tasks_and_seeds_that_lack_are_named_with_the_command_that_makes_them(made, board, installed, left_out, said):
    kept = [path for path in made if _place(path) not in left_out]
    found = refusals(kept, board, installed)
    assert len(found) == len(said) and all(part in sentence for part, sentence in zip(said, found, strict=True))
    task = said[0].split(" on ")[-1].split(" ")[0]
    command = f"`lgbench run --task {task} --arch toy-table+toy-nothing --protocol short --seeds 0:5 --average toy-mean`"
    assert command in found[0]


def _place(path: Path) -> tuple[str, int]:
    task, _, seed, *_ = path.name.split(".")
    return task, int(seed.removeprefix("seed-"))


def test_what_is_filed_counts_towards_what_must_be_there(later, filled, installed):
    assert submit(later, filled, installed).filed == 6 and len(list((filled / "runs").iterdir())) == 2
    assert check_filed(filled, installed) == []


def test_an_average_has_all_seeds_from_0_and_later_seeds_may_go_without(made, board, tmp_path, installed):
    other = published.make(tmp_path / "other", seeds=[1], average=[])
    said = refusals([path for path in made if _place(path)[1] != 1] + other, board, installed)
    assert said and all("@toy-mean on " in sentence and " lacks seed 1: every" in sentence for sentence in said)
    said = refusals([*made, *other], board, installed)
    assert len(said) == 2 and all("seed 1 under short/1 is a run already, in" in sentence for sentence in said)
    further = published.make(tmp_path / "further", seeds=[5, 6], average=[])
    assert submit([*made, *further], board, installed).filed == len(made) + len(further)


def test_seeds_may_have_more_measurements_than_earlier_ones(made, installed):
    found, _ = stored_in(made)
    fewer = [replace(run, metadata=replace(run.metadata, measurements=run.metadata.measurements[:1])) for run in found]
    mixed = [whole if whole.record.seed == 4 else old for whole, old in zip(found, fewer, strict=True)]
    assert list(incomplete(mixed, installed.tasks, mixed)) == []


def test_a_seed_far_away_is_refused_and_counts_nothing(honest, board, tmp_path, installed):
    far = put_right(honest, tmp_path / "far.parquet", lambda about: about["experiment"].update(seed=2**62))
    (said,) = refusals([far], board, installed)
    assert f"its seed is {2**62}" in said and "--seeds 0:5" in said


def test_what_was_put_among_the_filed_runs_by_hand_is_told(filled, later, tmp_path, installed):
    folder = filled / "runs"
    single = shutil.copy(later[0], folder / later[0].name)
    dirty = forged(
        later[2], tmp_path / later[2].name, lambda about: about["environment"].update(git_commit=f"{published.COMMIT}+dirty")
    )
    other = together([dirty], folder)
    said = "\n".join(check_filed(filled, installed))
    assert f"{single} is a run file, and filed runs are in submission files; file it with `lgbench submit`" in said
    assert f"{other}, run {later[2].stem}: it was made by a changed checkout" in said
    assert "lacks seed" in said


def test_a_reason_of_several_runs_is_told_once_with_their_number(made, board, tmp_path, installed):
    changed = {"git_commit": f"{published.COMMIT}+dirty"}
    dirty = [forged(path, tmp_path / path.name, lambda about: about["environment"].update(changed)) for path in made[:3]]
    (said,) = refusals(dirty, board, installed)
    assert said.startswith(f"{dirty[0]} and 2 other runs: it was made by a changed checkout")


def test_an_unreadable_filed_run_has_to_be_put_right_first(made, board, installed):
    (board / "runs").mkdir()
    (board / "runs" / "broken.parquet").write_text("broken")
    (said,) = refusals(made, board, installed)
    assert "broken.parquet" in said and "put it right first" in said


@pytest.mark.slow
def test_filed_runs_of_an_older_protocol_are_in_nobodys_way_and_stay(made, board, tmp_path, installed):
    older = [
        put_right(path, tmp_path / path.name, lambda about: about["experiment"]["protocol"].update(version=0))
        for path in made[:3]
    ]
    together(older, board / "runs")
    assert submit(made, board, installed).filed == len(made)
    assert check_filed(board, installed) == []


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_runs_of_a_submission_file_are_submitted_as_those_of_run_files(made, filled, board, tmp_path, installed):
    """As from somebody's fork."""
    done = submit([filled / "runs"], _folder(tmp_path / "other"), installed)
    assert done.filed == len(made) and done.file.read_bytes() == filed_in(filled).read_bytes()


OTHER = "its metadata or its rows are not those that were filed"
FORGERIES = {
    "its metadata": (lambda runs: runs[1].metadata["environment"].update(threads=2), lambda rows: rows, OTHER),
    "a number": (lambda runs: None, lambda rows: rows.set_column(VALUE, "value", pc.multiply(rows["value"], 0.5)), OTHER),
    "an id": (
        lambda runs: runs.insert(1, structs.replace(runs.pop(1), run_id="0" * 16)),
        lambda rows: rows,
        "by its metadata it is run ",
    ),
    "the order": (lambda runs: runs.reverse(), lambda rows: rows, "its rows are of another run, or of several"),
}
VALUE = SCHEMA.get_field_index("value")


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_run_within_a_submission_file_that_is_not_as_it_was_filed_is_named(filled, board, installed, kind):
    runs, rows, why = FORGERIES[kind]
    repacked(filed_in(filled), filed_in(filled), runs, rows)
    said = check_filed(filled, installed)
    assert any(sentence.startswith(f"{filed_in(filled)}, run ") and why in sentence for sentence in said), said


def test_the_command_says_what_was_filed_and_what_to_do_next(made, board, installed, tmp_path):
    done = with_plugins(installed, "submit", made[0].parent, "--out", board)
    assert done.exit_code == 0
    assert f"{len(made)} runs filed in {filed_in(board)}; next: run `make boards`" in done.output
    again = with_plugins(installed, "submit", made[0].parent, "--out", board)
    assert again.exit_code == 0
    assert again.output == f"{len(made)} runs filed before, with the same content\n"
    broken = tmp_path / "broken.parquet"
    broken.write_text("no run")
    refused = with_plugins(installed, "submit", *made[1:3], broken, "--out", board)
    assert refused.exit_code == 1 and "lgbench: nothing was filed, for 1 reason:" in refused.stderr


@pytest.mark.parametrize("arguments", [("verify", "nowhere"), ("submit", "nowhere", "--out", "board")])
def test_runs_that_are_not_there_are_wrong_usage(installed, arguments):
    refused = with_plugins(installed, *arguments)
    assert refused.exit_code == 2 and "Path 'nowhere' does not exist" in refused.stderr


WITH_THE_TASKS = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from helpers import published
from lgbench.extensions.registry import Registry
found = published.registry()
Registry.load = classmethod(lambda cls, files=(), only=None: found)
import lgbench.submissions.submission
"""


@pytest.mark.slow
def test_wherever_a_submission_is_killed_it_has_filed_all_runs_or_none(tmp_path, board, warm, installed):
    """At every third change of the disk. The same command then files all runs."""
    alone = published.make(tmp_path / "alone", task="alone")
    name, content = packed(alone)
    point, died = 0, True
    while died:
        died = dies(warm, ["submit", *alone, "--out", board], point, WITH_THE_TASKS)
        filed = {path.name: path.read_bytes() for path in board.glob("runs/*.parquet")}
        assert filed in ({}, {name: content}) and (died or filed), point
        submit(alone, board, installed)
        assert (board / "runs" / name).read_bytes() == content, point
        assert check_filed(board, installed) == [], point
        shutil.rmtree(board / "runs")
        point += 3
    assert point > 6
