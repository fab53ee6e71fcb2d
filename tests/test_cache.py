"""The cache: whatever it holds, results are what the run files say."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter

import pyarrow.parquet as pq
import pytest
from conftest import corrupt, simulated, write_rows

import lgbench
from lgbench import atomic_files
from lgbench.results import cache, database, run_files
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import described


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A folder of six runs, which count as many."""
    monkeypatch.setattr(database, "MANY", 6)
    for seed in range(6):
        write_rows(tmp_path / "it's [a]*" / f"{seed}.parquet", simulated({8: 0.1, 16: seed / 10}, seed=seed))
    return tmp_path


def seeds(folder):
    """The seeds that results and a board of a folder have, each from its own code."""
    opened = Results(folder)
    assert opened.left_out == []
    found = [row[0] for row in opened.ask("select seed from results where length = 16 order by seed")[1]]
    (board,) = opened.boards("tvd")
    assert board.rows[0].seeds == tuple(found)
    assert sorted(lgbench.read_results(folder).filter("length = 16").project("seed").fetchall()) == [(seed,) for seed in found]
    return found


def cached_files(folder):
    return sorted((folder / cache.FOLDER).glob("*"))


def test_few_run_files_get_no_cache_file(many):
    next(run_files.find(many)).unlink()
    assert seeds(many) == [1, 2, 3, 4, 5]
    assert cached_files(many) == []


def test_many_run_files_are_cached_once_and_read_from_the_cache_file(many, monkeypatch):
    before = list(run_files.find(many))
    expected = Results(many).boards("tvd")
    (cached,) = cached_files(many)
    assert list(run_files.find(many)) == before
    monkeypatch.setattr(cache, "write", None)  # would fail if it was called
    assert Results(many).files == [str(cached)]
    assert Results(many).boards("tvd") == expected
    assert seeds(many) == [0, 1, 2, 3, 4, 5]


def test_a_new_run_counts_at_once_and_many_new_ones_get_a_cache_file_of_their_own(many):
    Results(many)
    first = cached_files(many)
    for seed in range(6, 11):
        write_rows(many / f"{seed}.parquet", simulated({8: 0.1, 16: 0.5}, seed=seed))
    assert seeds(many) == list(range(11)) and cached_files(many) == first
    write_rows(many / "11.parquet", simulated({8: 0.1, 16: 0.5}, seed=11))
    assert seeds(many) == list(range(12))
    assert len(cached_files(many)) == 2 and set(first) < set(cached_files(many))


@pytest.mark.parametrize("when", ["later", "at the same time"])
def test_a_file_that_was_changed_counts_as_it_is(many, when):
    Results(many)
    (outdated,) = cached_files(many)
    path = next(run_files.find(many))
    before = path.stat()
    path.unlink()
    write_rows(path, simulated({8: 0.1, 16: 0.5, 32: 0.5}, seed=77))
    if when == "at the same time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_size != before.st_size
    assert seeds(many) == [1, 2, 3, 4, 5, 77]
    assert outdated not in cached_files(many) and len(cached_files(many)) == 1


def test_a_file_that_was_deleted_counts_no_more(many):
    Results(many)
    next(run_files.find(many)).unlink()
    assert seeds(many) == [1, 2, 3, 4, 5]
    assert cached_files(many) == []


def test_cache_files_can_be_deleted_and_moved_with_their_folder(many):
    Results(many)
    moved = many.rename(many.with_name("moved"))
    (cached,) = cached_files(moved)
    assert seeds(moved) == [0, 1, 2, 3, 4, 5]
    cached.unlink()
    assert seeds(moved) == [0, 1, 2, 3, 4, 5] and cached_files(moved) == [cached]


@pytest.mark.parametrize("ruin", [b"", b"hello", None])
def test_a_cache_file_that_cannot_be_read_is_made_again(many, ruin):
    Results(many)
    (cached,) = cached_files(many)
    cached.write_bytes(cached.read_bytes()[:-40] if ruin is None else ruin)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert footer_of(cached)


def test_a_run_file_among_the_cache_files_is_none_of_them(many):
    (many / cache.FOLDER).mkdir()
    write_rows(many / cache.FOLDER / "0.cache", simulated({8: 0.1, 16: 0.5}, seed=99))
    assert seeds(many) == [0, 1, 2, 3, 4, 5]


def test_where_nothing_can_be_written_results_are_the_same(many):
    (many / cache.FOLDER).write_text("a file, where a folder would be")
    assert seeds(many) == [0, 1, 2, 3, 4, 5]


def test_overlapping_cache_files_count_every_run_once(many):
    files = cache.state(many, run_files.find(many))
    names, own = list(files), described(run_files.metadata(many / next(iter(files))))
    for part in (names, names[1:], names[:2]):
        assert cache.write(many, {name: files[name] for name in part}, Counter(own))
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert len(cached_files(many)) == 3


def test_several_at_once_leave_one_cache_file_and_see_everything(many):
    found = []
    threads = [threading.Thread(target=lambda: found.append(Results(many).boards("tvd"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(boards == found[0] for boards in found)
    assert len(cached_files(many)) == 1


def test_among_many_files_the_broken_ones_are_named_and_the_others_are_cached(many):
    for seed in range(6, 30):
        lengths = {n: n / 7 for n in range(1, 500)}
        path = write_rows(many / f"{seed}.parquet", simulated(lengths, seed=seed))
        if seed in (11, 12, 29):
            corrupt(path)
    (many / "text.parquet").write_text("hello")
    for _ in range(2):
        opened = Results(many)
        broken = {name for name in ("11", "12", "29", "text") if f"/{name}.parquet" in "\n".join(opened.left_out)}
        assert broken == {"11", "12", "29", "text"} and len(opened.left_out) == 4
        (board,) = opened.boards("tvd")
        assert len(board.rows[0].seeds) == 27
        assert cached_files(many)


def test_a_full_disk_leaves_no_part_of_a_cache_file(many, monkeypatch):
    def full(handle):
        raise OSError("no space left on device")

    monkeypatch.setattr(atomic_files.os, "fsync", full)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert cached_files(many) == []


def test_a_cache_file_keeps_the_descriptions_of_its_run_files_and_how_many_have_them(many):
    for seed in range(6, 9):
        own = [description | {"name": "kl", "threshold": seed // 8 / 2} for description in described_in(many)[:1]]
        write_rows(many / f"{seed}.parquet", simulated({8: 0.1, 16: 0.5}, seed=seed, metric="kl"), measurements=own)
    fresh = Results(many)
    assert cached_files(many)
    again = Results(many)
    assert again.files == [str(path) for path in cached_files(many)]
    assert fresh.metrics == again.metrics and "kl" in again.metric_names
    assert next(metric.threshold for metric in again.metrics if metric.name == "kl") == 0.0  # as two of three have it
    (board,) = again.boards("kl")
    assert (board.rows[0].seeds, board.lacking) == ((6, 7, 8), {"arch+norm": 6})


def footer_of(cached):
    return json.loads(pq.read_metadata(cached).metadata[run_files.METADATA_KEY])


def described_in(folder):
    """What the first run file says of metrics."""
    return run_files.metadata(next(run_files.find(folder)))["measurements"]


@pytest.mark.parametrize("counted", [1, [[1]], [["x", "y"]], [[{}, "many"]], None])
def test_a_cache_file_without_sound_descriptions_is_made_again(many, counted):
    Results(many)
    (cached,) = cached_files(many)
    before = footer_of(cached)
    rows = pq.read_table(cached)
    pq.write_table(rows.replace_schema_metadata({b"lgbench": json.dumps(before | {"descriptions": counted}).encode()}), cached)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert footer_of(cached) == before
