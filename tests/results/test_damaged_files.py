"""Damaged run files and submission files: each is left out with a reason, and the boards of the other files stay."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import site_runs
from helpers.packing import together
from helpers.run_files import corrupt, simulated, write_rows

from lgbench.cli.main import main
from lgbench.results.leaderboard import Results


def damaged(content: bytes, draw: random.Random) -> bytes:
    """A file cut short, or with flipped bits: half of the time near the end, where the metadata are."""
    if draw.random() < 0.25:
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 3, 20])):
        first = draw.choice([0, max(0, len(content) - 6000)])
        changed[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("submitted", [False, True], ids=["run file", "submission file"])
@pytest.mark.parametrize("many", [5, pytest.param(80, marks=pytest.mark.slow)])
def test_a_damaged_file_is_named_and_left_out_and_the_boards_of_the_others_stay(tmp_path, many, submitted):
    draw = random.Random(0)
    for number, entry in enumerate(("best+norm", "poor+norm")):
        for seed in range(3):
            site_runs.write_run(tmp_path, "beta", entry, seed, number)
    poor = sorted(tmp_path.glob("*.parquet"))[3:]
    victim = together(poor, tmp_path) if submitted else poor[0]
    whole = victim.read_bytes()
    for path in poor:
        path.unlink()
    before = Results(tmp_path).boards("tvd") if submitted else None
    victim.unlink(missing_ok=True)
    boards = Results(tmp_path).boards("tvd")
    assert boards != before
    for _ in range(many):
        content = damaged(whole, draw)
        if content == whole:
            continue
        victim.write_bytes(content)
        results = Results(tmp_path)
        (sentence,) = results.left_out
        assert sentence.startswith(str(victim)) and results.boards("tvd") == boards


@pytest.mark.parametrize("submitted", [False, True], ids=["run file", "submission file"])
def test_a_file_with_broken_rows_and_a_checksum_that_fits_is_left_out_by_the_first_board(tmp_path, submitted):
    for seed in range(2):
        write_rows(tmp_path / f"good-{seed}.parquet", simulated({8: 0.5, 16: 0.25}, seed=seed))
    boards = Results(tmp_path).boards("tvd")
    lost = [simulated({8: 0.5, 16: 0.1}, seed=seed, entry="other") for seed in range(1 + submitted)]
    victim = write_rows(tmp_path / "lost[1].parquet", sum(lost, []))
    corrupt(victim)
    results = Results(tmp_path)
    assert not results.left_out and results.boards("tvd") == boards
    (sentence,) = results.left_out
    assert sentence.startswith(f"{victim}: unreadable data") and results.boards("tvd") == boards
    result = CliRunner().invoke(main, ["leaderboard", "--results", str(tmp_path)])
    assert result.exit_code == 0 and "other" not in result.stdout
    assert result.stderr.startswith(f"lgbench: warning: left out: {victim}: unreadable data")


def test_a_file_with_a_name_that_is_no_text_is_left_out(tmp_path):
    good = write_rows(tmp_path / "good.parquet", simulated({8: 0.5}))
    with open(bytes(tmp_path) + b"/\xff.parquet", "wb") as file:
        file.write(good.read_bytes())
    results = Results(tmp_path)
    (sentence,) = results.left_out
    assert "its name is not UTF-8; rename it" in sentence and results.boards("tvd")


def test_a_file_deleted_after_the_folder_was_opened_is_an_error_in_a_sentence(tmp_path):
    from lgbench.errors import RunFileError

    path: Path = write_rows(tmp_path / "good.parquet", simulated({8: 0.5}))
    results = Results(tmp_path)
    path.unlink()
    with pytest.raises(RunFileError, match="no run file can be read, or all were deleted meanwhile\n.*good"):
        results.boards("tvd")
