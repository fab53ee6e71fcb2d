from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import published
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from conftest import lgbench_command, write_sealed
from packing import packed, repacked, together
from published import forged, put_right

from lgbench.cli.main import main
from lgbench.errors import Refused, RunFileError, UsageError
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.registry import Registry
from lgbench.results import footers, run_files, submission_files
from lgbench.results.leaderboard import Results
from lgbench.results.run_schema import SCHEMA
from lgbench.submissions.reader import Reader
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
    with Reader() as reader:
        filed = {contents.packed.run_id: contents for contents in reader.runs(done.file)}
    assert len(filed) == len(made)
    for path in made:
        contents = filed[path.name.split(".")[-2]]
        assert json.loads(contents.footer) == run_files.metadata(path)
        assert repr(contents.rows.to_pylist()) == repr(run_files.read(path).to_pylist())
    diverged = [contents.rows["diverged_step"][0].as_py() for contents in filed.values()]
    assert None in diverged and any(diverged)


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


def test_what_is_filed_is_written_anew_and_not_copied(made, board, tmp_path, installed):
    for path in made:
        (tmp_path / "given").mkdir(exist_ok=True)
        footer = json.dumps(run_files.metadata(path)).encode()
        write_sealed(tmp_path / "given" / path.name, run_files.read(path), footer, compression="none")
    path = submit([tmp_path / "given"], board, installed).file
    assert pq.read_metadata(path).metadata.keys() == {b"lgbench", b"lgbench.footers", b"ARROW:schema"}
    assert (path.name, path.read_bytes()) == packed(made)


def test_one_bad_file_among_good_ones_and_nothing_is_written(made, board, tmp_path, installed):
    bad = forged(made[0], tmp_path / "bad.parquet", rows=lambda rows: rows[0].update(value=2.0))
    (tmp_path / "text.parquet").write_text("no run")
    said = refusals([*made[1:], bad, tmp_path / "text.parquet", tmp_path / "nowhere"], board, installed)
    assert list(board.iterdir()) == []
    assert len(said) == 3 and all(name in sentence for name, sentence in zip(("bad.", "text.", "nowhere"), said, strict=True))


def test_nothing_stays_when_writing_fails_midway(made, board, installed, monkeypatch):
    def failing(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(RunFileError, match="nothing was filed: cannot write to .*No space left"):
        submit(made, board, installed)
    assert list(board.iterdir()) == []


def test_the_folder_of_the_leaderboards_must_be_there(made, tmp_path, installed):
    with pytest.raises(UsageError, match="as in --to leaderboards/"):
        submit(made, tmp_path / "leaderbords", installed)
    assert not (tmp_path / "leaderbords").exists()


def test_a_path_that_is_given_twice_is_one_run(made, board, installed):
    given = [made[0].parent, *made, made[0].parent / ".." / made[0].parent.name]
    assert submit(given, board, installed).filed == len(made)


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
        ({("small-walk", 2)}, ["toy-table+toy-nothing on small-walk under short/1 lacks seed 2"]),
        ({("small-walk", 0), ("small-even", 4)}, ["small-even under short/1 lacks seed 4", "small-walk under"]),
        ({("small-even", s) for s in range(5)}, ["small-even under short/1 lacks seeds 0 to 4"]),
        ({(t, s) for t in ("small-even", "small-walk") for s in (3, 4)}, ["small-even", "small-walk"]),
    ],
)
def test_tasks_and_seeds_that_lack_are_named_with_the_command_that_makes_them(made, board, installed, left_out, said):
    kept = [path for path in made if "toy-table" in path.name and _place(path) not in left_out]
    found = refusals(kept, board, installed)
    assert len(found) == len(said) and all(part in sentence for part, sentence in zip(said, found, strict=True))
    task = said[0].split(" on ")[-1].split(" ")[0]
    command = f"`lgbench run --task {task} --arch toy-table+toy-nothing --protocol short --seeds 0:5`"
    assert command in found[0]


def _place(path: Path) -> tuple[str, int]:
    task, _, seed, *_ = path.name.split(".")
    return task, int(seed.removeprefix("seed-"))


@pytest.mark.slow
def test_more_seeds_than_needed_must_be_more_for_every_task(later, filled, installed):
    said = refusals([path for path in later if _place(path) in {("small-walk", 5), ("small-walk", 7)}], filled, installed)
    assert "small-even under short/1 lacks seeds 5 to 7" in said[0] and "--seeds 0:8" in said[0]
    assert "small-walk under short/1 lacks seed 6" in said[1]


def test_what_is_filed_counts_towards_what_must_be_there(later, filled, installed):
    assert submit(later, filled, installed).filed == 6 and len(list((filled / "runs").iterdir())) == 2
    assert check_filed(filled, installed) == []


def test_an_entry_has_the_same_averagers_in_all_its_runs(made, board, tmp_path, installed):
    other = published.make(tmp_path / "other", seeds=[1], averagers=[])
    kept = [path for path in made if "toy-table" in path.name and _place(path)[1] != 1]
    (said,) = refusals([*kept, *other], board, installed)
    assert "the averagers none and others toy-mean" in said and "--average" in said


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("python", "x", "`$.environment.python`"),
        ("python", "3.11.7; rm", "`$.environment.python`"),
        ("torch", "newest", "environment.torch is 'newest', expected a version"),
        ("threads", 2**31, "`$.environment.threads`"),
        ("threads", 2**14 + 1, "`$.environment.threads`"),
        ("population", 2**20 + 1, "`$.execution.population`"),
    ],
)
def test_facts_about_a_machine_that_no_machine_has_are_refused(honest, board, tmp_path, installed, field, value, said):
    part = "execution" if field == "population" else "environment"
    path = forged(honest, tmp_path / "run.parquet", lambda about: about[part].update({field: value}))
    sentences = refusals([path], board, installed)
    assert said in sentences[0]


def test_a_seed_far_away_is_refused_and_counts_nothing(honest, board, tmp_path, installed):
    far = put_right(honest, tmp_path / "far.parquet", lambda about: about["experiment"].update(seed=2**62))
    (said,) = refusals([far], board, installed)
    assert f"its seed is {2**62}" in said and "--seeds 0:5" in said


def test_what_was_put_among_the_filed_runs_by_hand_is_told(filled, later, tmp_path, installed):
    folder, one = filled / "runs", filed_in(filled)
    (folder / "notes.txt").write_text("mine")
    one.rename(folder / "renamed.parquet")
    single = shutil.copy(later[0], folder / later[0].name)
    linked = folder / "linked.parquet"
    linked.symlink_to(later[1])
    dirty = forged(
        later[2], tmp_path / later[2].name, lambda about: about["environment"].update(git_commit=f"{published.COMMIT}+dirty")
    )
    other = together([dirty], folder)
    said = "\n".join(check_filed(filled, installed))
    assert f"{folder / 'notes.txt'} is a file of another kind" in said
    assert f"{folder / 'renamed.parquet'}: a file with these runs alone is at {one}" in said
    assert f"{single} is a run file, and filed runs are in submission files; file it with `lgbench submit`" in said
    assert f"{linked} is a link" in said
    assert f"{other}, run {later[2].stem}: it was made by a changed checkout" in said
    assert "lacks seed" in said


def _packed(folder: Path, run: Path) -> Path:
    """Rows of a run, packed as the side door once took them."""
    (folder / ".packs").mkdir()
    packed = pq.read_table(run).replace_schema_metadata({b"lgbench": b'{"packed": {}}'})
    pq.write_table(packed, folder / ".packs" / "rows.parquet")
    return folder / ".packs"


def _made(path: Path, *inner: str) -> Path:
    path.mkdir()
    for name in inner:
        (path / name).mkdir()
    return path


def _linked(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


STRAYS = {
    "a hidden run": (lambda f, run: Path(shutil.copy(run, f / f".{run.name}")), "is a hidden file"),
    "a partial file": (lambda f, run: Path(shutil.copy(run, f / f".{run.name}.x.partial")), "is a hidden file"),
    "rows in a hidden folder": (_packed, "is a hidden folder with 1 thing (rows.parquet) in it"),
    "a cache": (
        lambda f, run: _made(f / ".cache", "a", "b", "c", "d"),
        "is a hidden folder with 4 things (a, b, c, ...) in it",
    ),
    "unfinished runs": (lambda f, run: _made(f / ".unfinished"), "is a hidden folder with nothing in it"),
    "an empty folder": (lambda f, run: _made(f / "empty"), "is a folder with nothing in it"),
    "runs in a folder": (lambda f, run: shutil.move(run, _made(f / "deep")) and f / "deep", "is a folder with 1 thing ("),
    "a link to a run": (lambda f, run: _linked(f / "link.parquet", run), "is a link"),
    "a link to a folder": (lambda f, run: _linked(f / "link", f.parent), "is a link"),
    "a link to nothing": (lambda f, run: _linked(f / ".link", f / "nowhere"), "is a hidden link"),
    "a pipe": (lambda f, run: os.mkfifo(f / "pipe.parquet") or f / "pipe.parquet", "is no regular file"),
    "a note": (lambda f, run: Path(shutil.copy(run, f / "README.md")), "is a file of another kind"),
    "a damaged file": (
        lambda f, run: Path(shutil.copy(run, f / f"{run.name}.damaged-1")),
        "is a damaged file that was set aside",
    ),
    "damaged weights": (
        lambda f, run: Path(shutil.copy(run, f / f"{run.stem}.safetensors.damaged-1")),
        "is a damaged file that was set aside",
    ),
    "a name with an escape": (lambda f, run: _made(f / "a\x1b[31m\n") and f / "a\\x1b[31m\\n", "is a folder with nothing"),
}


@pytest.mark.parametrize("kind", STRAYS)
def test_everything_among_the_filed_runs_that_is_no_run_is_named(filled, installed, kind):
    put, why = STRAYS[kind]
    path = put(filled / "runs", filed_in(filled))
    (said, *rest) = check_filed(filled, installed)
    assert said.startswith(f"{path} {why}") and said.endswith(
        "this folder has submission files and weights of their runs alone: remove it"
    )
    assert not rest


@pytest.mark.parametrize("kind", ["a hidden run", "rows in a hidden folder"])
def test_nothing_hidden_comes_on_boards(made, board, installed, kind):
    (board / "runs").mkdir()
    STRAYS[kind][0](board / "runs", made[0])
    with pytest.raises(UsageError, match="no runs in"):
        Results(board / "runs")
    assert len(check_filed(board, installed)) == 1


def test_the_folder_of_filed_runs_is_a_folder(filled, tmp_path, installed):
    (filled / "runs").rename(tmp_path / "elsewhere")
    assert check_filed(filled, installed) == []
    (filled / "runs").symlink_to(tmp_path / "elsewhere")
    (said,) = check_filed(filled, installed)
    assert said.startswith(f"{filled / 'runs'} is no folder of filed runs")


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
    filed = together(older, board / "runs")
    assert submit(made, board, installed).filed == len(made)
    assert check_filed(board, installed) == []
    moved = filed.rename(filed.with_name("moved.parquet"))
    (said,) = check_filed(board, installed)
    assert said == f"{moved}: a file with these runs alone is at {filed}"


def test_runs_of_a_submission_file_are_submitted_as_those_of_run_files(made, filled, board, tmp_path, installed):
    """As from somebody's fork."""
    done = submit([filled / "runs"], _made(tmp_path / "other"), installed)
    assert done.filed == len(made) and done.file.read_bytes() == filed_in(filled).read_bytes()


OTHER = "its footer or its rows are not those that were filed"
FORGERIES = {
    "a footer": (lambda runs: runs[1].footer["environment"].update(threads=2), lambda rows: rows, OTHER),
    "a number": (lambda runs: None, lambda rows: rows.set_column(VALUE, "value", pc.multiply(rows["value"], 0.5)), OTHER),
    "an id": (lambda runs: vars(runs[1]).update(run_id="0" * 16), lambda rows: rows, "its footer makes it run "),
    "the order": (lambda runs: runs.reverse(), lambda rows: rows, OTHER),
}
VALUE = SCHEMA.get_field_index("value")


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_run_within_a_submission_file_that_is_not_as_it_was_filed_is_named(filled, board, installed, kind):
    runs, rows, why = FORGERIES[kind]
    repacked(filed_in(filled), filed_in(filled), runs, rows)
    said = check_filed(filled, installed)
    assert any(sentence.startswith(f"{filed_in(filled)}, run ") and why in sentence for sentence in said), said


def test_more_runs_than_a_submission_file_takes_are_refused(made, board, installed, monkeypatch):
    monkeypatch.setattr(footers, "MAX_RUNS", 19)
    with pytest.raises(RunFileError, match="nothing was filed: a submission has 19 runs and 64 MB of footers at most"):
        submit(made, board, installed)
    assert list(board.iterdir()) == []


def lgbench(*arguments, registry):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Registry, "load", classmethod(lambda cls, files=(): registry))
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="lgbench")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def test_the_command_says_what_was_filed_and_what_to_do_next(made, board, installed):
    done = lgbench("submit", made[0].parent, "--to", board, registry=installed)
    assert done.exit_code == 0
    assert f"{len(made)} runs filed in {filed_in(board)}; next: run `make boards`" in done.output
    again = lgbench("submit", made[0].parent, "--to", board, registry=installed)
    assert again.exit_code == 0
    assert again.output == f"{len(made)} runs filed before, with the same content\n"
    refused = lgbench("submit", *made[1:3], made[0].parent / "nowhere", "--to", board, registry=installed)
    assert refused.exit_code == 1 and "lgbench: nothing was filed, for 1 reason:" in refused.stderr


def test_the_command_without_a_folder_to_file_in_is_wrong_usage(made, tmp_path, installed):
    assert lgbench("submit", made[0], registry=installed).exit_code == 2
    assert lgbench("submit", made[0], "--to", tmp_path / "nowhere", registry=installed).exit_code == 2
    assert lgbench("submit", "--to", tmp_path, registry=installed).exit_code == 2


def test_an_interrupted_submission_files_nothing(made, board, installed, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(submission_files, "written", interrupted)
    done = lgbench("submit", *made, "--to", board, registry=installed)
    assert done.exit_code == 130 and "nothing was filed" in done.stderr
    assert list(board.iterdir()) == []


def test_help_of_publishing_imports_nothing_heavy():
    done = lgbench_command("submit", "--help", then="print(*sys.modules)")
    assert done.returncode == 0 and not {"torch", "pyarrow", "duckdb", "psutil", "msgspec"} & set(done.stdout.split())


def test_the_protocols_of_the_leaderboards_are_published():
    assert {name for name, protocol in PROTOCOLS.items() if protocol.published} == {"short", "standard", "long", "paper"}
