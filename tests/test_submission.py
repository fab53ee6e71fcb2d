from __future__ import annotations

import re
import shutil
from pathlib import Path

import published
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from conftest import lgbench_command
from published import forged, put_right

from lgbench.cli.main import main
from lgbench.errors import Refused, RunFileError, UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.registry import Registry
from lgbench.results import run_files
from lgbench.results.leaderboard import Results
from lgbench.submissions.completeness import MIN_SUBMITTED_SEEDS
from lgbench.submissions.submission import check_filed, submit


@pytest.fixture(scope="module")
def installed() -> Registry:
    return published.registry()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Path]:
    """Both tasks of a family, two entries, seeds 0 to 4; about half of the fragile ones diverged."""
    return published.make(tmp_path_factory.mktemp("made"), ("toy-table", "toy-fragile"))


@pytest.fixture(scope="module")
def honest(made) -> Path:
    """One run that did not diverge."""
    return next(path for path in made if path.name.startswith("small-even.toy-table+toy-nothing.seed-3"))


@pytest.fixture(scope="module")
def later(tmp_path_factory) -> list[Path]:
    """Seeds 5 to 7 of one of the entries."""
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
    filed = submit([made[0].parent], board, installed)
    assert sorted(path.name for path in filed) == sorted(path.name for path in made)
    assert set(filed) == set((board / "runs").iterdir())
    assert Results(board / "runs").boards("tvd")
    assert check_filed(board, installed) == []
    for path in filed:
        original = made[0].parent / path.name
        assert run_files.metadata(path) == run_files.metadata(original)
        assert repr(run_files.read(path).to_pylist()) == repr(run_files.read(original).to_pylist())
    diverged = [run_files.read(path)["diverged_step"][0].as_py() for path in filed]
    assert None in diverged and any(diverged)


def test_what_was_filed_is_refused_the_second_time(made, filled, installed):
    said = refusals(made, filled, installed)
    assert len(said) == len(made)
    assert all("is a run already, in" in sentence and str(filled / "runs") in sentence for sentence in said)


def test_what_is_filed_is_written_anew_and_not_copied(made, board, tmp_path, installed):
    for path in made:
        table = pq.read_table(path)
        padded = table.replace_schema_metadata({**table.schema.metadata, b"hidden": b"x" * 1000})
        (tmp_path / "given").mkdir(exist_ok=True)
        pq.write_table(padded, tmp_path / "given" / path.name, compression="none")
    for path in submit([tmp_path / "given"], board, installed):
        assert pq.read_metadata(path).metadata.keys() <= {b"lgbench", b"ARROW:schema"}
        assert path.read_bytes() == (made[0].parent / path.name).read_bytes()


def test_one_bad_file_among_good_ones_and_nothing_is_written(made, board, tmp_path, installed):
    bad = forged(made[0], tmp_path / "bad.parquet", rows=lambda rows: rows[0].update(value=2.0))
    (tmp_path / "text.parquet").write_text("no run")
    said = refusals([*made[1:], bad, tmp_path / "text.parquet", tmp_path / "nowhere"], board, installed)
    assert list(board.iterdir()) == []
    assert len(said) == 3 and all(name in sentence for name, sentence in zip(("bad.", "text.", "nowhere"), said, strict=True))


def test_nothing_stays_when_writing_fails_midway(made, board, installed, monkeypatch):
    write, count = run_files.write, iter(range(99))

    def failing(*arguments):
        if next(count) == 3:
            raise OSError(28, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(run_files, "write", failing)
    with pytest.raises(RunFileError, match="nothing was filed: cannot write to .*No space left"):
        submit(made, board, installed)
    assert list(board.iterdir()) == []


def test_the_folder_of_the_leaderboards_must_be_there(made, tmp_path, installed):
    with pytest.raises(UsageError, match="as in --to leaderboards/"):
        submit(made, tmp_path / "leaderbords", installed)
    assert not (tmp_path / "leaderbords").exists()


def test_a_path_that_is_given_twice_is_one_run(made, board, installed):
    assert len(submit([made[0].parent, *made, made[0].parent / ".." / made[0].parent.name], board, installed)) == len(made)


def test_a_folder_without_runs_is_told(board, tmp_path, installed):
    (tmp_path / "folder.parquet").mkdir()
    (said,) = refusals([tmp_path / "folder.parquet"], board, installed)
    assert "no run file is in this folder" in said and "folder.parquet" in said


def test_a_copy_under_another_name_is_a_duplicate(made, board, tmp_path, installed):
    copy = shutil.copy(made[2], tmp_path / "copy.parquet")
    (said,) = refusals([*made, Path(copy)], board, installed)
    assert str(copy) in said and str(made[2]) in said and "is a run already" in said


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ({("small-walk", 2)}, ["toy-table+toy-nothing on small-walk under standard/4 lacks seed 2"]),
        ({("small-walk", 0), ("small-even", 4)}, ["small-even under standard/4 lacks seed 4", "small-walk under"]),
        ({("small-even", s) for s in range(5)}, ["small-even under standard/4 lacks seeds 0 to 4"]),
        ({(t, s) for t in ("small-even", "small-walk") for s in (3, 4)}, ["small-even", "small-walk"]),
    ],
)
def test_tasks_and_seeds_that_lack_are_named_with_the_command_that_makes_them(made, board, installed, left_out, said):
    kept = [path for path in made if "toy-table" in path.name and _place(path) not in left_out]
    found = refusals(kept, board, installed)
    assert len(found) == len(said) and all(part in sentence for part, sentence in zip(said, found, strict=True))
    task = said[0].split(" on ")[-1].split(" ")[0]
    command = f"`lgbench run --task {task} --arch toy-table+toy-nothing --protocol standard --seeds 0:{MIN_SUBMITTED_SEEDS}`"
    assert command in found[0]


def _place(path: Path) -> tuple[str, int]:
    task, _, seed, *_ = path.name.split(".")
    return task, int(seed.removeprefix("seed-"))


def test_more_seeds_than_needed_must_be_more_for_every_task(later, filled, installed):
    said = refusals([path for path in later if _place(path) in {("small-walk", 5), ("small-walk", 7)}], filled, installed)
    assert "small-even under standard/4 lacks seeds 5 to 7" in said[0] and "--seeds 0:8" in said[0]
    assert "small-walk under standard/4 lacks seed 6" in said[1]


def test_what_is_filed_counts_towards_what_must_be_there(later, filled, installed):
    assert len(submit(later, filled, installed)) == 6
    assert check_filed(filled, installed) == []


def test_an_entry_has_the_same_averagers_in_all_its_runs(made, board, tmp_path, installed):
    other = published.make(tmp_path / "other", seeds=[1], averagers=[])
    kept = [path for path in made if "toy-table" in path.name and _place(path)[1] != 1]
    (said,) = refusals([*kept, *other], board, installed)
    assert "the averagers none and others toy-mean" in said and "--average" in said


def test_a_seed_far_away_is_refused_and_counts_nothing(honest, board, tmp_path, installed):
    far = put_right(honest, tmp_path / "far.parquet", lambda about: about["experiment"].update(seed=2**62))
    (said,) = refusals([far], board, installed)
    assert f"its seed is {2**62}" in said and "--seeds 0:5" in said


def test_what_was_put_among_the_filed_runs_by_hand_is_told(filled, tmp_path, installed):
    folder = filled / "runs"
    (folder / "notes.txt").write_text("mine")
    one, two, three = sorted(folder.glob("*.parquet"))[:3]
    one.rename(folder / "renamed.parquet")
    shutil.move(two, tmp_path / two.name)
    two.symlink_to(tmp_path / two.name)
    table, about = run_files.read(three), run_files.metadata(three)
    three.unlink()
    about["environment"]["git_commit"] += "+dirty"
    run_files.write(three, table, about)
    said = "\n".join(check_filed(filled, installed))
    assert f"{folder / 'notes.txt'} is no readable Parquet file" in said
    assert f"{folder / 'renamed.parquet'}: a filed run is a file at {one}" in said
    assert f"{two}: a filed run is a file at {two}" in said
    assert f"{three}: it was made by a changed checkout" in said
    assert "lacks seed" in said


def test_an_unreadable_filed_run_has_to_be_put_right_first(made, board, installed):
    (board / "runs").mkdir()
    (board / "runs" / "broken.parquet").write_text("broken")
    (said,) = refusals(made, board, installed)
    assert "broken.parquet" in said and "put it right first" in said


def test_filed_runs_of_an_older_protocol_are_in_nobodys_way_and_stay(made, board, tmp_path, installed):
    (board / "runs").mkdir()
    for path in made[:3]:
        older = put_right(path, tmp_path / path.name, lambda about: about["experiment"]["protocol"].update(version=2))
        digits = run_files.read(older)["run_id"][0].as_py()
        older = older.rename(board / "runs" / re.sub("[0-9a-f]{16}", digits, path.name))
    assert len(submit(made, board, installed)) == len(made)
    assert check_filed(board, installed) == []
    moved = older.rename(older.with_name("moved.parquet"))
    (said,) = check_filed(board, installed)
    assert said.startswith(f"{moved}: a filed run is a file at ")


def lgbench(*arguments, registry):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Registry, "load", classmethod(lambda cls, files=(): registry))
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="lgbench")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def test_the_command_says_what_was_filed_and_what_to_do_next(made, board, installed):
    done = lgbench("submit", made[0].parent, "--to", board, registry=installed)
    assert done.exit_code == 0
    assert f"{len(made)} runs filed in {board}/runs/" in done.output and "make boards" in done.output
    again = lgbench("submit", made[0].parent, "--to", board, registry=installed)
    assert again.exit_code == 1 and f"lgbench: nothing was filed, for {len(made)} reasons:" in again.stderr


def test_the_command_without_a_folder_to_file_in_is_wrong_usage(made, tmp_path, installed):
    assert lgbench("submit", made[0], registry=installed).exit_code == 2
    assert lgbench("submit", made[0], "--to", tmp_path / "nowhere", registry=installed).exit_code == 2
    assert lgbench("submit", "--to", tmp_path, registry=installed).exit_code == 2


def test_an_interrupted_submission_files_nothing(made, board, installed, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_files, "write", interrupted)
    done = lgbench("submit", *made, "--to", board, registry=installed)
    assert done.exit_code == 130 and "nothing was filed" in done.stderr
    assert list(board.iterdir()) == []


def test_help_of_publishing_imports_nothing_heavy():
    done = lgbench_command("submit", "--help", then="print(*sys.modules)")
    assert done.returncode == 0 and not {"torch", "pyarrow", "duckdb", "psutil", "msgspec"} & set(done.stdout.split())


def test_the_protocols_of_the_leaderboards_are_published():
    assert {name for name, protocol in PROTOCOLS.items() if protocol.published} == {"standard", "paper"}
