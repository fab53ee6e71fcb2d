"""Submissions that carry weights: filed before their runs, checked, and tested again by whoever reviews them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import published
import pytest
from click.testing import CliRunner
from kept_runs import weights_of
from published import forged

from lgbench.cli.main import main
from lgbench.errors import Interrupted, Refused, RunFileError
from lgbench.extensions.registry import Registry
from lgbench.kept.finding import weights_of as weights_of_run
from lgbench.submissions import filing
from lgbench.submissions.submission import check_filed, submit


@pytest.fixture(scope="module")
def installed() -> Registry:
    return published.registry()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Five seeds of one task with their weights. Tests must not write into it."""
    folder = tmp_path_factory.mktemp("made")
    published.make(folder, tasks=["alone"], keep_weights=True)
    return folder


@pytest.fixture
def board(tmp_path) -> Path:
    folder = tmp_path / "leaderboards"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def toys_alone_are_installed(monkeypatch, installed):
    monkeypatch.setattr(Registry, "load", classmethod(lambda cls, files=(): installed))


def lgbench(*words: object):
    result = CliRunner().invoke(main, list(map(str, words)), prog_name="lgbench")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def carried(given: Path, board, installed):
    return submit([given], board, installed, weights_of=weights_of_run)


def filed(board: Path) -> dict[str, int]:
    """How many files of each kind are filed."""
    names = [path.suffix for path in board.rglob("*") if path.is_file()]
    return {suffix: names.count(suffix) for suffix in sorted(set(names))}


def test_weights_are_filed_beside_the_submission_file_and_tested_again_there(made, board, installed):
    done = lgbench("submit", made, "--to", board, "--weights")
    assert done.exit_code == 0 and "weights of 5 runs are filed" in done.stdout and "5 runs filed in" in done.stdout
    assert filed(board) == {".parquet": 1, ".safetensors": 5} and check_filed(board, installed) == []
    for path in made.glob("*.safetensors"):
        assert (board / "runs" / path.name).read_bytes() == path.read_bytes()
    done = lgbench("verify", board / "runs", "--evaluate-only")
    assert done.exit_code == 0 and "5 of 5 runs verified" in done.stdout


def test_a_forged_table_is_caught_at_once_in_what_was_filed(made, board, installed, tmp_path):
    """Its weights are honest, for training others takes as long as an honest run."""
    lying = Path(shutil.copytree(made, tmp_path / "lying"))
    path = next(lying.glob("*.seed-3.*.parquet"))

    def better(rows):
        for row in rows:
            if row["metric"] == "tvd" and row["weights"] == "raw":
                row["value"] *= 0.9

    forged(path, path.with_name("forged.parquet"), rows=better)
    path.with_name("forged.parquet").replace(path)
    carried(lying, board, installed)
    done = lgbench("verify", board / "runs", "--evaluate-only")
    assert done.exit_code == 1 and "4 of 5 runs verified" in done.stderr
    assert done.stdout.count("differs: toy-table+toy-nothing on alone seed 3: tvd (raw) at length") == 1


def test_a_submission_carries_no_weights_unless_asked_to_and_they_may_be_added_later(made, board, installed):
    lgbench("submit", made, "--to", board)
    assert filed(board) == {".parquet": 1}
    assert "the weights of this run are missing" in lgbench("verify", board / "runs", "--evaluate-only").stdout
    done = lgbench("submit", made, "--to", board, "--weights")
    assert done.exit_code == 0 and "5 runs filed before" in done.stdout and "weights of 5 runs are filed" in done.stdout
    assert filed(board) == {".parquet": 1, ".safetensors": 5} and check_filed(board, installed) == []


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_weights_that_are_not_those_of_the_run_are_refused_and_nothing_is_filed(made, board, installed, tmp_path, damage):
    own = Path(shutil.copytree(made, tmp_path / "own"))
    weights = weights_of(next(own.glob("*.seed-2.*.parquet")))
    content = weights.read_bytes()
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(content[:-1] if damage == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Refused) as refused:
        carried(own, board, installed)
    (sentence,) = refused.value.sentences
    assert str(weights) in sentence and ("missing" if damage == "missing" else "damaged") in sentence
    assert filed(board) == {}


def test_weights_of_no_filed_run_and_damaged_ones_are_named(made, board, installed):
    carried(made, board, installed)
    (one, two, *_) = sorted((board / "runs").glob("*.safetensors"))
    one.write_bytes(b"x")
    two.rename(two.with_name("other.safetensors"))
    found = check_filed(board, installed)
    assert len(found) == 2 and any(f"{one} are damaged" in sentence for sentence in found)
    assert any("other.safetensors has weights of no filed run" in sentence for sentence in found)


@contextmanager
def cut_short(monkeypatch, place: int, error: BaseException) -> Iterator[None]:
    """Writing the file of this number, counted from 0, fails."""
    write, written = Path.write_bytes, []

    def fails(path, content):
        if path.name.endswith(".partial"):
            written.append(path)
            if len(written) == place + 1:
                raise error
        return write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fails)
        yield
    assert len(written) == place + 1


@pytest.mark.parametrize("place", [0, 3, 5])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_submission_that_is_cut_short_has_filed_all_or_nothing(made, board, installed, monkeypatch, place, error):
    """While one of the six files is written, of which the last has the runs."""
    with cut_short(monkeypatch, place, error), pytest.raises((Interrupted, RunFileError), match="nothing was filed"):
        carried(made, board, installed)
    assert filed(board) == {}
    carried(made, board, installed)
    assert filed(board) == {".parquet": 1, ".safetensors": 5} and not (board / filing.FOLDER).exists()


@pytest.mark.slow
def test_weights_that_come_later_are_filed_with_the_new_runs_or_not_at_all(made, board, installed, monkeypatch, tmp_path):
    """The last of the sixteen files has the new runs; the weights of those that were filed before are among the others."""
    lgbench("submit", made, "--to", board)
    both = Path(shutil.copytree(made, tmp_path / "both"))
    published.make(both, tasks=["small"], keep_weights=True)
    full = OSError(28, "No space left on device")
    with cut_short(monkeypatch, 15, full), pytest.raises(RunFileError, match="nothing was filed"):
        carried(both, board, installed)
    assert filed(board) == {".parquet": 1}
    done = carried(both, board, installed)
    assert (done.filed, done.before, done.weights) == (10, 5, 15) and filed(board) == {".parquet": 2, ".safetensors": 15}


@pytest.mark.slow
def test_runs_without_weights_are_filed_as_ever(board, installed, tmp_path):
    published.make(tmp_path / "plain", tasks=["alone"])
    done = lgbench("submit", tmp_path / "plain", "--to", board, "--weights")
    assert done.exit_code == 0 and "no run has kept weights; make runs with --keep-weights" in done.stdout
    assert filed(board) == {".parquet": 1}
