"""The cache: whatever it holds, results are what the run files say."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import corrupt, simulated, write_rows

import lgbench
from lgbench import UsageError, atomic_files, user_cache
from lgbench.errors import RunFileError
from lgbench.results import cache, run_files, tables
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import described
from lgbench.results.run_schema import METADATA_KEY, SCHEMA


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A folder of six runs, which count as many, with a cache of its own beside it."""
    monkeypatch.setattr(tables, "MANY", 6)
    monkeypatch.setenv(user_cache.VARIABLE, str(tmp_path / "it's a cache"))
    for seed in range(6):
        write_rows(tmp_path / "runs" / "it's [a]*" / f"{seed}.parquet", simulated({8: 0.1, 16: seed / 10}, seed=seed))
    return tmp_path / "runs"


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
    return sorted(path for path in (folder.parent / "it's a cache").rglob("*") if path.is_file())


def of_folder(folder):
    """Where the cache files of a results folder are, with a cache file in it."""
    Results(folder)
    return cached_files(folder)[0].parent


def test_few_run_files_get_no_cache_file(many):
    next(run_files.find(many)).unlink()
    assert seeds(many) == [1, 2, 3, 4, 5]
    assert cached_files(many) == []


@pytest.mark.slow
def test_many_run_files_are_cached_once_and_read_from_the_cache_file(many, monkeypatch):
    before = list(run_files.find(many))
    expected = Results(many).boards("tvd")
    (cached,) = cached_files(many)
    assert list(run_files.find(many)) == before
    monkeypatch.setattr(cache, "write", None)  # would fail if it was called
    monkeypatch.setattr(run_files, "footers", None)
    assert Results(many).names == [path.relative_to(many).as_posix() for path in before]
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


@pytest.mark.slow
@pytest.mark.parametrize("when", ["later", "at the same time"])
def test_a_file_that_was_changed_counts_as_it_is_and_the_others_are_read_from_the_cache(many, monkeypatch, when):
    Results(many)
    (cached,) = cached_files(many)
    path = next(run_files.find(many))
    before = path.stat()
    path.unlink()
    write_rows(path, simulated({8: 0.1, 16: 0.7}, seed=7))
    if when == "at the same time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    read, footers = [], run_files.footers
    monkeypatch.setattr(run_files, "footers", lambda path: read.append(path) or footers(path))
    assert seeds(many) == [1, 2, 3, 4, 5, 7]
    assert set(read) == {path} and cached_files(many) == [cached]


def test_a_file_that_was_deleted_counts_no_more_and_neither_do_its_metrics(many):
    own = [description | {"name": "kl"} for description in described_in(many)[:1]]
    path = write_rows(many / "kl.parquet", simulated({8: 0.1, 16: 0.5}, seed=9, metric="kl"), measurements=own)
    assert "kl" in Results(many).metric_names
    path.unlink()
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert "kl" not in Results(many).metric_names and len(cached_files(many)) == 1


def test_a_cache_file_of_which_most_has_changed_is_left_alone(many):
    Results(many)
    for path in [*run_files.find(many)][:4]:
        path.unlink()
    opened = Results(many)
    assert opened._cached == [] and seeds(many) == [4, 5]


def test_cache_files_can_be_deleted_and_belong_to_one_results_folder(many):
    Results(many)
    (cached,) = cached_files(many)
    cached.unlink()
    assert seeds(many) == [0, 1, 2, 3, 4, 5] and cached_files(many) == [cached]
    moved = many.rename(many.with_name("moved"))
    assert seeds(moved) == [0, 1, 2, 3, 4, 5] and len(cached_files(moved)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("place", [".cache", ".packs", "cache/results"])
def test_nothing_in_a_results_folder_is_a_cache_file(many, monkeypatch, place):
    """A pack of other rows under any name changes no board, whether lgbench made it or not."""
    genuine = of_folder(many)
    forged = next(genuine.iterdir())
    kinds = pq.read_table(forged)
    rows = [own | {"points": [point | {"value": 0.0} for point in own["points"]]} for own in kinds.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=kinds.schema), forged)
    assert Results(many).boards("tvd")[0].rows[0].cell("OOD").mean == 0  # where it belongs, it would be read
    shutil.copytree(genuine, many / place / genuine.name)
    monkeypatch.setenv(user_cache.VARIABLE, str(many / "cache"))
    assert Results(many).boards("tvd")[0].rows[0].cell("OOD").mean == 0.25


def test_without_a_variable_the_cache_is_in_the_users_cache_folder(many, monkeypatch):
    monkeypatch.delenv(user_cache.VARIABLE)
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(many.parent / "home"))
    Results(many)
    (cached,) = [path for path in (many.parent / "home").rglob("*.cache")]
    assert "lgbench" in cached.parts and cached_files(many) == []


@pytest.mark.parametrize("ruin", [b"", b"hello", None])
def test_a_cache_file_that_cannot_be_read_is_made_again(many, ruin):
    Results(many)
    (cached,) = cached_files(many)
    cached.write_bytes(cached.read_bytes()[:-40] if ruin is None else ruin)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert about(cached)


def test_a_run_file_among_the_cache_files_is_none_of_them(many):
    write_rows(of_folder(many) / "0.cache", simulated({8: 0.1, 16: 0.5}, seed=99))
    assert seeds(many) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("broken", ["a file", "no rights", "full"])
def test_where_nothing_can_be_written_results_are_the_same(many, monkeypatch, broken):
    folder = many.parent / "it's a cache"
    if broken == "a file":
        folder.write_text("where a folder would be")
    elif broken == "no rights":
        monkeypatch.setattr(Path, "mkdir", refusing)
    else:
        monkeypatch.setattr(atomic_files.os, "fsync", refusing)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert [path for path in cached_files(many) if path != folder] == []


def test_without_a_cache_many_files_are_read_for_every_query_and_must_not_change(many, monkeypatch):
    monkeypatch.setattr(cache, "write", lambda *given: None)
    monkeypatch.setattr(tables, "MOST", 0)
    opened = Results(many)
    assert opened.ask("select count(*) from loose")[1] == [(0,)]
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    guarded = Results(many)
    guarded.guard()
    assert guarded.ask("select sum(seed) from results")[1] == [(30,)]
    next(run_files.find(many)).unlink()
    with pytest.raises(RunFileError, match="changed while they were read; give the command again"):
        opened.boards("tvd")


@pytest.mark.parametrize(("least", "most"), [(1, 9), (9, 9), (9, 0)], ids=["cached", "in memory", "read for each query"])
@pytest.mark.parametrize("at_once", [1, 4, 9])
def test_the_rows_of_results_are_those_of_the_run_files_wherever_they_are_kept(many, monkeypatch, least, most, at_once):
    monkeypatch.setattr(tables, "MANY", least)
    monkeypatch.setattr(tables, "MOST", most)
    monkeypatch.setattr(tables, "AT_ONCE", at_once)
    curve = [row | {"metric": "train_loss", "length": None, "step": step, "metric_version": None, "on_boards": None}
             for row in simulated({8: None}, seed=9) for step in (1, 2, 2)]  # fmt: skip
    write_rows(many / "odd.parquet", [*simulated({8: float("nan"), 16: None, 32: 0.1, 64: 0.1}, seed=9), *curve])
    expected = pa.concat_tables([run_files.read(path) for path in run_files.find(many)])
    for opened in (Results(many), Results(many)):  # which leaves a cache file, and reads it
        names, rows = opened.ask("select * from results")
        assert names == SCHEMA.names
        typed = duckdb.from_arrow(expected).fetchall()
        assert sorted(map(repr, rows)) == sorted(map(repr, typed))


def refusing(*given, **named):
    raise OSError(28, "no space left on device")


@pytest.mark.slow
def test_a_cache_file_that_is_deleted_or_broken_while_it_is_used_costs_time_alone(many):
    for ruin in (Path.unlink, lambda path: path.write_bytes(b"PAR1"), lambda path: corrupt_rows(path)):
        before = Results(many).boards("tvd")
        cached, guarded, fresh = cached_files(many), Results(many), Results(many)
        assert fresh.boards("tvd") == before
        guarded.guard()
        for path in cached:
            ruin(path)
        assert guarded.ask("select sum(seed) from results")[1] == [(30,)]
        with pytest.raises(UsageError, match="--unsafe"):
            guarded.ask("select * from read_text('/etc/hostname')")
        assert fresh.boards("tvd", "alpha") == before and fresh.left_out == []
        for path in cached_files(many):
            path.unlink()


def corrupt_rows(path):
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(bytes(content))


def test_a_reader_whose_cache_file_and_run_files_are_gone_says_so(many):
    opened = Results(many)
    for path in cached_files(many):
        path.unlink()
    next(run_files.find(many)).unlink()
    with pytest.raises(RunFileError, match="changed while they were read; give the command again"):
        opened.boards("tvd")


def test_a_relation_reads_the_run_files_however_late_it_is_asked(many):
    Results(many)
    relation = lgbench.read_results(many)
    for path in cached_files(many):
        path.unlink()
    assert len(relation.fetchall()) == 12


def test_run_files_that_change_while_they_are_read_are_read_again(many, monkeypatch):
    """Of two files that are replaced one after the other, no board has the first as it was and the second as it became."""
    first, second = [*run_files.find(many)][:2]
    footers, changes = run_files.footers, iter([(first, 50), (second, 60)])

    def slow(path):
        for changed, seed in changes:  # all at once: after the first was read, before the second is
            changed.unlink()
            write_rows(changed, simulated({8: 0.1, 16: 0.5}, seed=seed))
        return footers(path)

    monkeypatch.setattr(run_files, "footers", slow)
    assert seeds(many) == [2, 3, 4, 5, 50, 60]


def test_a_folder_that_never_rests_is_read_as_it_was_last_and_says_so(many, monkeypatch):
    monkeypatch.setattr(tables, "MANY", 1000)
    footers, count = run_files.footers, itertools.count(1)

    def busy(path):
        os.utime(path, (next(count), 0))
        return footers(path)

    monkeypatch.setattr(run_files, "footers", busy)
    (sentence,) = Results(many).left_out
    assert "changed" in sentence and "5 times in a row" in sentence


def aged(path, days):
    then = path.stat().st_mtime - days * 24 * 60 * 60
    os.utime(path, (then, then))
    return path


def test_whoever_writes_a_cache_file_deletes_what_nobody_wants_and_leaves_what_is_in_use(many, monkeypatch):
    mine = of_folder(many)
    (used,) = cached_files(many)
    other = many.parent / "it's a cache" / "results" / "other"
    other.mkdir()
    names = {"forgotten.cache": 31, "recent.cache": 1, "now.cache": 0, ".killed.abc.partial": 1, ".writing.abc.partial": 0}
    for name, days in names.items():
        (other / name).write_bytes(b"x" * 1000)
        aged(other / name, days)
    aged(used, 29)
    Results(many)  # uses it
    for seed in range(6, 12):
        write_rows(many / f"{seed}.parquet", simulated({8: 0.1, 16: 0.5}, seed=seed))
    Results(many)
    assert {path.name for path in other.iterdir()} == {"recent.cache", "now.cache", ".writing.abc.partial"}
    assert used.exists() and len(list(mine.iterdir())) == 2
    monkeypatch.setattr(cache, "MAX_BYTES", 1)
    for seed in range(12, 18):
        write_rows(many / f"{seed}.parquet", simulated({8: 0.1, 16: 0.5}, seed=seed))
    Results(many)
    assert {path.name for path in other.iterdir()} == {"now.cache", ".writing.abc.partial"}
    assert used.exists() and len(list(mine.iterdir())) == 3 and seeds(many) == list(range(18))


def test_overlapping_cache_files_count_every_run_once(many):
    files = run_files.states(many)
    names, own = list(files), cache.Ways([tuple(described(run_files.metadata(many / next(iter(files)))))])
    for part in (names, names[1:], names[:2]):
        with duckdb.connect() as connection:
            paths = [cache.unglobbed(f"{many}/{name}") for name in part]
            connection.execute(f"create table opened as {tables.packaged('kinds')}", {"paths": paths})
            assert cache.write(many, {name: files[name] for name in part}, dict.fromkeys(part, own), connection, "opened")
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


@pytest.mark.slow
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


def test_a_cache_file_keeps_the_descriptions_of_its_run_files_and_how_many_have_them(many):
    for seed in range(6, 9):
        own = [description | {"name": "kl", "threshold": seed // 8 / 2} for description in described_in(many)[:1]]
        write_rows(many / f"{seed}.parquet", simulated({8: 0.1, 16: 0.5}, seed=seed, metric="kl"), measurements=own)
    fresh = Results(many)
    assert cached_files(many)
    again = Results(many)
    assert [own.path for own in again._cached] == cached_files(many)
    assert fresh.metrics == again.metrics and "kl" in again.metric_names
    assert next(metric.threshold for metric in again.metrics if metric.name == "kl") == 0.0  # as two of three have it
    (board,) = again.boards("kl")
    assert (board.rows[0].seeds, board.lacking) == ((6, 7, 8), {"arch+norm": 6})


def footer_of(cached):
    return json.loads(pq.read_metadata(cached).metadata[METADATA_KEY])


def described_in(folder):
    """The descriptions of metrics in the first run file."""
    return run_files.metadata(next(run_files.find(folder)))["measurements"]


@pytest.mark.parametrize("counted", [1, [1], [], {}, None])
def test_a_cache_file_without_sound_descriptions_is_made_again(many, counted):
    Results(many)
    (cached,) = cached_files(many)
    before = about(cached)
    rows = pq.read_table(cached)
    pq.write_table(rows.replace_schema_metadata({b"lgbench": json.dumps(before | {"described": counted}).encode()}), cached)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert about(cached) == before


def about(cached):
    return json.loads(pq.read_metadata(cached).metadata[b"lgbench"])


BOARDS = """
import json, sys
from lgbench.results import tables
from lgbench.results.leaderboard import Results

tables.MANY = 6
while True:
    results = Results(sys.argv[1])
    (board,) = results.boards("tvd")
    (row,) = board.rows
    seeds = sorted(seed for (seed,) in results.ask("select distinct seed from results")[1])
    print(json.dumps([seeds, list(row.seeds), row.cell("OOD").values, results.left_out]), flush=True)
"""


@pytest.mark.slow
def test_boards_that_several_make_while_run_files_come_change_and_go_are_of_true_states(many):
    """Each file is replaced in turn, and every state has its own set of seeds: a board of two states would have another set."""
    for path in run_files.find(many):
        path.unlink()
    paths, count = [many / f"{n}.parquet" for n in range(30)], itertools.count(1)
    state, true = {}, set()

    def change(path, seed):
        if seed is None:
            path.unlink()
            del state[path]
        else:
            write_rows(path.with_name(f".{path.name}.new"), simulated({8: 0.1, 16: seed % 1000 / 1000}, seed=seed)).replace(
                path
            )
            state[path] = seed
        true.add(tuple(sorted(state.values())))

    for path in paths:
        change(path, next(count))
    made = [many.parent / f"boards{n}" for n in range(4)]
    readers = []
    for path in made:
        with path.open("w") as out:
            readers.append(subprocess.Popen([sys.executable, "-c", BOARDS, many], stdout=out, stderr=subprocess.STDOUT))
    draw = random.Random(0)
    for _ in range(1000):
        path = draw.choice(paths)
        change(path, None if path in state and len(state) > 20 and draw.random() < 0.3 else next(count))
        time.sleep(draw.choice([0, 0, 0.05, 1, 2]))  # a reader that finds no rest at all says so
        if all(len(path.read_text().splitlines()) > 5 for path in made):
            break
    ended = [reader.poll() for reader in readers]
    for reader in readers:
        reader.kill()
        reader.wait()
    assert ended == [None] * len(readers), [path.read_text()[-3000:] for path in made]
    boards = [json.loads(line) for path in made for line in path.read_text().splitlines()[:5]]
    for seeds, ranked, values, left_out in boards:
        assert left_out or tuple(seeds) in true
        assert seeds == ranked and values == [seed % 1000 / 1000 for seed in seeds]
    assert sum(not left_out for *_, left_out in boards) > len(boards) / 2
