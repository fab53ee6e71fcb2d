"""`lgbench merge`: runs of several machines in one folder, each once. Nothing is lost, and no number contradicts another."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import pytest
from helpers.commands import invoked
from helpers.packing import together
from helpers.run_files import measured_by_all, simulated, write_rows
from helpers.saved_runs import weights_of

from lgbench.results import merging, run_files
from lgbench.results.leaderboard import Results
from lgbench.results.merging import RunInFile, compared, merge
from lgbench.results.run_files import SavedWeights


def name_of(seed, task="alpha"):
    return f"{task}.arch+norm.seed-{seed}.{seed:016x}.parquet"


def run(folder: Path, seed=0, tvd=0.5, saved: bytes | None = None, seconds=1.0, more=(), **columns) -> Path:
    """A run file, with weights if it `saved` some, as a machine makes it in some seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    same = {"run_id": f"{seed:016x}", "seed": seed, **columns}
    rows = simulated({8: tvd, 64: 0.25}, **same) + [
        row for metric in more for row in simulated({8: 1.0}, metric=metric, **same)
    ]
    about = {"task": "alpha", "family": "alpha", "entry": "arch+norm", "seed": seed}
    own = {} if saved is None else SavedWeights.of(saved).field
    path = write_rows(
        folder / name_of(seed), rows, experiment=about, measurements=measured_by_all(), seconds={"train": seconds}, **own
    )
    if saved is not None:
        run_files.write_weights(SavedWeights.of(saved).beside(path), saved)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file by its path in the folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def merged(*places, to):
    """Runs written, runs that were there, weights, and all sentences."""
    done = merge(places, to)
    return done.written, done.equal, done.weights, done.different + done.left_out


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "a", tmp_path / "b", tmp_path / "c"


def test_runs_of_two_machines_come_together_and_the_same_run_is_one(folders):
    a, b, c = folders
    for seed in (0, 1):
        run(a, seed, seconds=1)
    for seed in (1, 2):
        run(b, seed, seconds=2)
    tuning = run(b / ".tuning", 7)
    before = contents(a), contents(b)
    assert merged(a, b, to=c) == (4, 0, 0, [])
    assert contents(c) == {**contents(b), **contents(a)} and f".tuning/{tuning.name}" in contents(c)
    assert (contents(a), contents(b)) == before
    after = contents(c)
    assert merged(a, b, to=c) == (0, 4, 0, []) and contents(c) == after
    assert not Results(c).left_out


def test_different_numbers_under_one_id_name_both_files_and_one_is_taken(folders):
    a, b, c = folders
    run(a, 0)
    first, second = run(a, 1, tvd=0.5), run(b, 1, tvd=0.5000000000000001)
    sentence = f"{first} and {second}: tvd (raw) at length 8 after step 5 is 0.5 (n 4) and 0.5000000000000001 (n 4)"
    assert merged(a, b, to=c) == (2, 0, 0, [sentence])
    assert contents(c) == contents(a)
    result = invoked("merge", b, "--out", c)
    assert result.exit_code == 1 and "1 file has other numbers than another file of the same run" in result.output


def test_a_tuning_run_with_other_numbers_than_one_that_is_there_already_is_found_too(folders):
    a, b, c = folders
    run(a, 0), run(b / ".tuning", 0, tvd=0.1), run(c / ".tuning", 0, tvd=0.2)
    before = contents(c)
    *_, (sentence,) = merged(a, b, to=c)
    assert re.search(r"c/\.tuning/.* and .*b/\.tuning/.*is 0\.2 .*and 0\.1 ", sentence)
    assert contents(c).items() > before.items()


@pytest.mark.parametrize("which", [0, 1])
def test_a_folder_can_be_merged_into_one_of_those_that_are_named(folders, which):
    a, b, _ = folders
    run(a, 0), run(a, 1), run(b, 1), run(b, 2)
    to = (a, b)[which]
    before = contents(to)
    assert merged(a, b, to=to) == (1, 1, 0, [])
    assert contents(to).keys() == {name_of(seed) for seed in (0, 1, 2)} and contents(to).items() >= before.items()


def test_weights_travel_and_a_file_that_has_them_is_preferred(folders):
    a, b, c = folders
    run(a, 0), run(b, 0, saved=b"weights of 0"), run(a, 1, saved=b"weights of 1")
    assert merged(a, b, to=c) == (2, 0, 2, [])
    assert contents(c) == {name: content for name, content in {**contents(a), **contents(b)}.items()}


def test_weights_that_are_missing_or_damaged_cost_no_run_and_are_named(folders):
    a, _, c = folders
    missing, damaged = (run(a, seed, saved=b"weights") for seed in (0, 1))
    weights_of(missing).unlink()
    weights_of(damaged).write_bytes(b"weightz")
    written, _, weights, left_out = merged(a, to=c)
    assert (written, weights) == (2, 0) and contents(c).keys() == {name_of(0), name_of(1)}
    assert [bool(re.search(why, each)) for why, each in zip(("missing", "damaged"), left_out, strict=True)] == [True, True]


def test_the_file_that_measured_more_is_taken_and_one_that_is_there_already_stays(folders):
    a, b, c = folders
    plain, more = run(a, 0), run(b, 0, more=("accuracy",))
    assert merged(a, b, to=c) == (1, 0, 0, [])
    assert contents(c) == {more.name: more.read_bytes()}
    shutil.rmtree(c)
    merged(a, to=c)
    assert merged(b, to=c) == (0, 1, 0, []) and contents(c) == {plain.name: plain.read_bytes()}


def test_a_merge_that_was_interrupted_is_completed_by_the_same_command(folders, monkeypatch):
    a, b, c = folders
    for seed in range(3):
        run(a, seed, saved=b"weights")
    run(b, 3)
    merged(a, b, to=c)
    whole = contents(c)
    for failing in range(7):  # four runs, three weights
        shutil.rmtree(c)
        calls = 0

        def linked(path, *scratch, own=merging.created, last=failing):
            nonlocal calls
            calls += 1
            if calls > last:
                raise KeyboardInterrupt
            return own(path, *scratch)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            for module in (merging, run_files):
                patch.setattr(module, "created", linked)
            merge([a, b], c)
        half = contents(c)
        assert len(half) == failing and half.items() <= whole.items()
        assert all(weights_of(path) for path in c.glob("*[012].parquet"))
        merged(a, b, to=c)
        assert contents(c) == whole


def test_damaged_files_are_left_out_and_the_command_says_so_and_fails(folders):
    a, b, c = folders
    good, bad = run(a, 0), run(a, 1)
    bad.write_bytes(bad.read_bytes()[:-9])
    (c / bad.name).parent.mkdir()
    (c / bad.name).write_bytes(b"half")
    result = invoked("merge", a, "--out", c)
    assert result.exit_code == 1 and contents(c)[good.name] == good.read_bytes()
    assert f"1 run written to {c}/; 0 were there already" in result.output
    assert f"warning: left out: {bad}" in result.output and "2 files are left out; all else is merged" in result.output
    again = run(b, 1)
    *_, said = merged(b, to=c)
    assert contents(c)[bad.name] == again.read_bytes() and contents(c)[f"{bad.name}.damaged-1"] == b"half"
    assert "was damaged, and is now" in said[-1]


def test_a_folder_that_cannot_be_written_is_named(folders):
    a, b, _ = folders
    run(a, 0)
    b.write_text("a file")
    result = invoked("merge", a, "--out", b / "all")
    assert result.exit_code == 2 and f"cannot write to the results folder '{b / 'all'}': Not a directory" in result.output


def test_a_submission_file_is_unpacked_into_its_runs(folders):
    a, b, c = folders
    first, second = run(a, 0, saved=b"weights"), run(a, 1)
    submission = together([first, second], b)
    shutil.copy(weights_of(first), b)
    assert run_files.checked(submission).is_submission and not run_files.checked(first).is_submission
    assert merged(b, to=c) == (2, 0, 1, [])
    assert contents(c).keys() == contents(a).keys()
    for path in (first, second):
        assert run_files.read(c / path.name).equals(run_files.read(path))
        ours, theirs = (run_files.metadata(each) | {"checksum": ""} for each in (c / path.name, path))
        assert ours == theirs
    assert merged(a, b, to=c) == (0, 2, 0, [])


def test_metadata_that_name_a_place_outside_write_nothing_there(folders, tmp_path):
    a, _, c = folders
    about = {"task": "../../evil", "entry": "arch", "seed": 0}
    a.mkdir()
    write_rows(a / "evil.parquet", simulated({8: 0.5}, run_id="f" * 16), experiment=about, measurements=[])
    assert merged(a, to=c)[0] == 1 and len(contents(c)) == 1


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ((0.5, None), (0.5, None), True),
        ((0.5, math.nan), (0.5, math.nan), True),
        ((0.5, None), (0.5, math.nan), False),
        ((0.0,), (-0.0,), False),
        ((0.1,), (0.1 + 2**-56,), False),
    ],
)
def test_numbers_are_equal_if_all_their_bits_are(tmp_path, one, two, same):
    found = []
    for name, values in (("1.parquet", one), ("2.parquet", two)):
        path = write_rows(tmp_path / name, simulated(dict(enumerate(values, 1))))
        found += [RunInFile(path, run) for run in run_files.checked(path).runs()]
    assert (compared(*found) is None) is same


def test_a_run_that_somebody_writes_while_folders_are_merged_is_left_as_it_is(folders, monkeypatch):
    a, _, c = folders
    mine = run(a, 0, seconds=1.0)
    content = merging.RunInFile.content

    def late(found):
        run(c, 0, seconds=2.0)
        return content(found)

    monkeypatch.setattr(merging.RunInFile, "content", late)
    assert merged(a, to=c)[-1] == []
    assert [*contents(c)] == [mine.name] and contents(c)[mine.name] != mine.read_bytes()
