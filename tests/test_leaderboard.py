from __future__ import annotations

import os
import random
import statistics
import threading
from collections import defaultdict

import duckdb
import pytest
from conftest import corrupt, simulated, write_rows

import lgbench
from lgbench import UsageError, leaderboard, packs, runfiles
from lgbench.leaderboard import Results

LENGTHS = range(20)
TRAINED = 6


def boards_by_hand(rows, metric, name=None):
    """What the boards should hold, computed in plain Python: {board: (train length, {entry: {column: ...}})}."""
    values = {}  # one value a model, task and length, whatever holds it
    for row in rows:
        if row["metric"] == metric and row["length"] is not None and name in (None, row["family"], row["task"]):
            entry = row["entry"] + ("" if row["weights"] == "raw" else "@" + row["weights"])
            board = row["task"] if name == row["task"] != row["family"] else row["family"]
            place = (board, row["task_version"], row["protocol"])
            values[place, entry, row["seed"], row["length"], row["task"]] = row
    boards = {}
    for place in {key[0] for key in values}:
        own = {key[1:]: row for key, row in values.items() if key[0] == place}
        tasks = {task for _, _, _, task in own}
        trained = max(length for (_, _, length, _), row in own.items() if row["in_training_range"])
        shown = {2**k for k in range(20)} | {trained, max(length for _, _, length, _ in own)}
        columns = defaultdict(dict)  # by seed
        diverged = defaultdict(set)
        for entry, seed in sorted({key[:2] for key in own}):
            by_length = {}
            for length in sorted(shown - {0}):
                found = [own[entry, seed, length, task]["value"] for task in tasks if (entry, seed, length, task) in own]
                if len(found) == len(tasks) and None not in found:
                    by_length[length] = statistics.fmean(found)
            if any(row["diverged_step"] for key, row in own.items() if key[:2] == (entry, seed)):
                diverged[entry].add(seed)
            for length, value in by_length.items():
                columns[entry, "length", length][seed] = value
            near = [value for length, value in by_length.items() if length <= trained]
            far = [value for length, value in by_length.items() if length > trained]
            for column, chosen in (("in range", near), ("score", far)):
                if chosen:
                    columns[entry, column, None][seed] = statistics.fmean(chosen)
        boards[place] = (trained, dict(columns), diverged)
    return boards


def random_rows(seed, tasks=("alpha-1", "alpha-2", "beta"), metrics=("tvd", "accuracy")):
    draw = random.Random(seed)
    rows = []
    for task in tasks:
        for entry in ("a+x", "a+y", "b+x"):
            for model in range(draw.randint(1, 4)):
                if draw.random() < 0.1:
                    continue
                diverged = draw.choice([None, None, None, 17])
                for weights in ("raw", "ema"):
                    for metric in metrics:
                        values = {n: draw.choice([None, 0.0, 1.0, *(draw.random() for _ in range(9))]) for n in LENGTHS}
                        labels = {"entry": entry, "task": task, "family": task.partition("-")[0], "seed": model}
                        rows += simulated(values, TRAINED, **labels, weights=weights, metric=metric, diverged_step=diverged)
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_boards_equal_a_computation_by_hand(tmp_path, seed):
    rows = random_rows(seed)
    write_rows(tmp_path / "1.parquet", rows[::2])
    write_rows(tmp_path / "2.parquet", rows[1::2])
    results = Results(tmp_path)
    for metric in ("tvd", "accuracy"):
        for name in (None, "alpha", "alpha-2", "beta"):
            expected = boards_by_hand(rows, metric, name)
            found = results.boards(metric, name)
            assert [(b.name, b.task_version, b.protocol) for b in found] == sorted(expected)
            for board in found:
                check_board(board, *expected[board.name, board.task_version, board.protocol], lowest_first=metric == "tvd")


def check_board(board, trained, columns, diverged, lowest_first):
    assert board.train_length == trained
    cells = {(row.entry, c.kind, c.length): c for row in board.rows for c in row.cells}
    assert cells.keys() == columns.keys()
    for key, by_seed in columns.items():
        cell, values = cells[key], list(by_seed.values())
        assert cell.mean == pytest.approx(statistics.fmean(values), abs=5.1e-5)
        assert cell.seeds == len(values)
        if len(values) == 1:
            assert cell.spread is None
        else:
            assert cell.spread == pytest.approx(statistics.stdev(values), abs=5.1e-5)
        assert cell.diverged == len(diverged[key[0]] & by_seed.keys())
    sign = 1 if lowest_first else -1
    order = [sign * cells[row.entry, "score", None].mean for row in board.rows]
    assert order == sorted(order)
    assert [row.rank for row in board.rows] == [1 + sum(other < own for other in order) for own in order]


@pytest.mark.parametrize(("metric", "best"), [("tvd", "low"), ("accuracy", "high"), ("roc_auc", "high")])
def test_the_best_comes_first_whichever_way_a_metric_points(tmp_path, metric, best):
    rows = [simulated({8: 0.5, 16: value}, entry=entry, metric=metric) for entry, value in (("low", 0.1), ("high", 0.9))]
    write_rows(tmp_path / "run.parquet", sum(rows, []))
    (board,) = Results(tmp_path).boards(metric)
    assert [row.rank for row in board.rows] == [1, 2]
    assert board.rows[0].entry == best


def test_equal_scores_are_ranked_by_the_training_range_and_then_share_a_rank(tmp_path):
    values = {"worse": (0.4, 0.5), "first": (0.1, 0.5), "also-first": (0.1, 0.5), "last": (0.0, 0.6)}
    for entry, (near, far) in values.items():
        write_rows(tmp_path / f"{entry}.parquet", simulated({8: near, 16: far}, entry=entry))
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.rank, row.entry) for row in board.rows] == [(1, "also-first"), (1, "first"), (3, "worse"), (4, "last")]


def test_an_entry_without_numbers_beyond_the_training_range_comes_last(tmp_path):
    write_rows(tmp_path / "1.parquet", simulated({8: 0.9, 16: 0.9}, entry="tested"))
    write_rows(tmp_path / "2.parquet", simulated({8: 0.0, 16: None}, entry="untested"))
    for metric in ("tvd",):
        (board,) = Results(tmp_path).boards(metric)
        assert [row.entry for row in board.rows] == ["tested", "untested"]
        assert board.rows[1].cell("score") is None


def test_only_spaced_lengths_enter_the_means(tmp_path):
    wild = {n: 0.5 if n in (1, 2, 4, 7, 8, 16, 20) else 100.0 for n in range(21)}
    write_rows(tmp_path / "run.parquet", simulated(wild, trained=7))
    (board,) = Results(tmp_path).boards("tvd")
    (row,) = board.rows
    assert {c.mean for c in row.cells} == {0.5}
    assert {c.length for c in row.cells if c.kind == "length"} == {1, 2, 4, 7, 8, 16, 20}
    assert board.lengths == [7, 8, 16, 20]


def test_versions_and_protocols_are_never_mixed(tmp_path):
    kinds = [(1, "quick/1"), (2, "quick/1"), (1, "quick/2"), (1, "standard/1"), (1, "quick/1 train.lr=0.1")]
    for index, (version, protocol) in enumerate(kinds):
        rows = simulated({8: 0.0, 16: index / 10}, task_version=version, protocol=protocol)
        write_rows(tmp_path / f"{index}.parquet", rows)
    results = Results(tmp_path)
    found = {(b.task_version, b.protocol): b.rows[0].cell("score").mean for b in results.boards("tvd")}
    assert found == {kind: index / 10 for index, kind in enumerate(kinds)}
    assert {(b.task_version, b.protocol) for b in results.boards("tvd", protocol="quick")} == {
        (1, "quick/1"),
        (2, "quick/1"),
        (1, "quick/2"),
    }
    (changed,) = results.boards("tvd", protocol="quick/1 train.lr=0.1")
    assert changed.protocol == "quick/1 train.lr=0.1"
    assert [b.task_version for b in results.boards("tvd", protocol="quick/1")] == [2, 1]


def test_a_run_that_two_files_hold_counts_once(tmp_path):
    for name in ("here", "copies/there", "copies/again"):
        write_rows(tmp_path / f"{name}.parquet", simulated({8: 0.1, 16: 0.2}))
    write_rows(tmp_path / "other.parquet", simulated({8: 0.3, 16: 0.6}, seed=1))
    (board,) = Results(tmp_path).boards("tvd")
    cell = board.rows[0].cell("length", 16)
    assert (cell.seeds, cell.mean) == (2, 0.4)


def test_a_family_counts_seeds_that_ran_all_its_tasks_and_names_the_others(tmp_path):
    def write(task, entry, seed, value):
        rows = simulated({8: 0.0, 16: value}, task=task, family="alpha", entry=entry, seed=seed)
        write_rows(tmp_path / f"{task}{entry}{seed}.parquet", rows)

    write("alpha-1", "whole", 0, 0.1)
    write("alpha-2", "whole", 0, 0.3)
    write("alpha-1", "whole", 1, 0.9)  # its alpha-2 is missing
    write("alpha-2", "half", 0, 0.0)
    results = Results(tmp_path)
    (family,) = results.boards("tvd", "alpha")
    assert [(row.entry, row.cell("score").mean, row.seeds) for row in family.rows] == [("whole", 0.2, 1)]
    assert family.tasks == 2
    assert sorted(family.incomplete) == [
        "half seed 0 has 1 of the 2 tasks and is left out",
        "whole seed 1 has 1 of the 2 tasks and is left out",
    ]
    (single,) = results.boards("tvd", "alpha-1")
    assert [(row.entry, row.seeds) for row in single.rows] == [("whole", 2)]
    assert single.incomplete == () and single.tasks == 1


def test_diverged_seeds_count_and_are_counted(tmp_path):
    for seed, step in enumerate([None, 7, 7]):
        rows = simulated({8: 0.5, 16: 1.0 if step else 0.4}, seed=seed, diverged_step=step)
        write_rows(tmp_path / f"{seed}.parquet", rows)
    (board,) = Results(tmp_path).boards("tvd")
    (row,) = board.rows
    assert (row.seeds, row.diverged) == (3, 2)
    assert row.cell("score").mean == pytest.approx(0.8)


def test_training_curves_are_no_part_of_a_board(tmp_path):
    curve = [row | {"length": None, "in_training_range": None} for row in simulated({1: 55.0}, metric="train_loss")]
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.5}) + curve)
    results = Results(tmp_path)
    assert [b.metric for b in results.boards("tvd")] == ["tvd"]
    with pytest.raises(UsageError, match="train_loss"):
        results.boards("train_loss")


def test_bad_files_are_named_and_the_rest_is_ranked(tmp_path):
    good = simulated({8: 0.5, 16: 0.25})
    write_rows(tmp_path / "good.parquet", good)
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "text.parquet").write_text("hello")
    bad = write_rows(tmp_path / "corrupt.parquet", simulated({n: n / 7 for n in range(1, 500)}, entry="corrupt"))
    corrupt(bad)
    results = Results(tmp_path)
    named = {name for name in ("empty", "text", "corrupt", "good") if f"/{name}.parquet" in "\n".join(results.left_out)}
    assert named == {"corrupt", "empty", "text"}
    (board,) = results.boards("tvd")
    assert [row.entry for row in board.rows] == ["arch+norm"]
    with pytest.warns(UserWarning, match="left out") as warned:
        assert lgbench.results(tmp_path).shape[0] == len(good)
    assert len(warned) == 3


def test_a_folder_with_bad_files_alone_says_why_there_is_nothing(tmp_path):
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(UsageError, match="no runs") as refused:
        Results(tmp_path)
    assert "empty.parquet" in str(refused.value)


def test_a_missing_and_an_empty_folder_say_what_makes_runs(tmp_path):
    with pytest.raises(UsageError, match="no results folder .*nowhere.*lgbench run"):
        Results(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no runs in .*lgbench run"):
        Results(tmp_path)


@pytest.fixture
def small(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.25}, task="alpha-1", family="alpha"))
    return Results(tmp_path)


def test_unknown_names_suggest_what_the_folder_has(small):
    with pytest.raises(UsageError, match="no task 'alhpa'; did you mean 'alpha'"):
        small.boards("tvd", "alhpa")
    with pytest.raises(UsageError, match="no metric 'tdv'; did you mean 'tvd'"):
        small.boards("tdv")
    with pytest.raises(UsageError, match="no protocol 'quck'; did you mean 'quick'"):
        small.boards("tvd", protocol="quck")


def test_a_metric_that_nobody_measured_has_no_board(small):
    assert small.boards("roc_auc") == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select nonsense from results", "nonsense"),
        ("selec 1", "syntax error"),
        ("select * from nowhere", "nowhere"),
        (" ", "select"),
        ("-- nothing", "select"),
    ],
)
def test_a_wrong_query_is_a_usage_error_in_the_words_of_duckdb(small, sql, said):
    with pytest.raises(UsageError) as refused:
        small.ask(sql)
    assert said in str(refused.value)


def test_any_query_over_all_rows_works(small):
    assert small.ask("select length, value from results order by length") == (["length", "value"], [(8, 0.5), (16, 0.25)])


def test_results_are_a_relation_that_keeps_working(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.25}))
    relation = lgbench.results(tmp_path)
    assert relation.aggregate("avg(value)").fetchall() == [(0.375,)]
    assert relation.filter("length = 16").fetchall()[0][relation.columns.index("value")] == 0.25


def test_results_can_be_named_in_a_query_of_duckdb(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5, 16: 0.25}))
    rows = lgbench.results(tmp_path)
    assert duckdb.sql("select max(value) from rows").fetchall() == [(0.5,)]
    assert rows.shape[0] == 2


def test_a_folder_whose_name_has_glob_characters_or_quotes_is_read(tmp_path):
    folder = tmp_path / "runs [a]*'s"
    write_rows(folder / "run.parquet", simulated({8: 0.5, 16: 0.25}))
    assert lgbench.results(folder).shape[0] == 2


def test_folders_that_say_key_equals_value_add_no_columns(tmp_path):
    for seed in (0, 1):
        write_rows(tmp_path / f"device={seed}" / "run.parquet", simulated({8: 0.5, 16: 0.25}, seed=seed))
    assert lgbench.results(tmp_path).columns == runfiles.SCHEMA.names
    assert Results(tmp_path).ask("select * from results")[0] == runfiles.SCHEMA.names


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A folder of six runs, which count as many."""
    monkeypatch.setattr(leaderboard, "MANY", 6)
    for seed in range(6):
        write_rows(tmp_path / "it's [a]*" / f"{seed}.parquet", simulated({8: 0.1, 16: seed / 10}, seed=seed))
    return tmp_path


def seeds(folder):
    """The seeds that results and a board of a folder have, each from its own code."""
    opened = Results(folder)
    assert opened.left_out == []
    found = [row[0] for row in opened.ask("select seed from results where length = 16 order by seed")[1]]
    (board,) = opened.boards("tvd")
    assert board.rows[0].seeds == len(found)
    assert sorted(lgbench.results(folder).filter("length = 16").project("seed").fetchall()) == [(seed,) for seed in found]
    return found


def packed(folder):
    return sorted((folder / packs.FOLDER).glob("*"))


def test_few_run_files_are_not_packed(many):
    next(runfiles.find(many)).unlink()
    assert seeds(many) == [1, 2, 3, 4, 5]
    assert packed(many) == []


def test_many_run_files_are_packed_once_and_read_from_the_pack(many, monkeypatch):
    before = list(runfiles.find(many))
    expected = Results(many).boards("tvd")
    (pack,) = packed(many)
    assert list(runfiles.find(many)) == before
    monkeypatch.setattr(packs, "write", None)  # would fail if it was called
    assert Results(many).files == [str(pack)]
    assert Results(many).boards("tvd") == expected
    assert seeds(many) == [0, 1, 2, 3, 4, 5]


def test_a_new_run_counts_at_once_and_many_new_ones_get_a_pack_of_their_own(many):
    Results(many)
    first = packed(many)
    for seed in range(6, 11):
        write_rows(many / f"{seed}.parquet", simulated({8: 0.1, 16: 0.5}, seed=seed))
    assert seeds(many) == list(range(11)) and packed(many) == first
    write_rows(many / "11.parquet", simulated({8: 0.1, 16: 0.5}, seed=11))
    assert seeds(many) == list(range(12))
    assert len(packed(many)) == 2 and set(first) < set(packed(many))


@pytest.mark.parametrize("when", ["later", "at the same time"])
def test_a_file_that_was_changed_counts_as_it_is(many, when):
    Results(many)
    (outdated,) = packed(many)
    path = next(runfiles.find(many))
    before = path.stat()
    path.unlink()
    write_rows(path, simulated({8: 0.1, 16: 0.5, 32: 0.5}, seed=77))
    if when == "at the same time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_size != before.st_size
    assert seeds(many) == [1, 2, 3, 4, 5, 77]
    assert outdated not in packed(many) and len(packed(many)) == 1


def test_a_file_that_was_deleted_counts_no_more(many):
    Results(many)
    next(runfiles.find(many)).unlink()
    assert seeds(many) == [1, 2, 3, 4, 5]
    assert packed(many) == []


def test_packs_can_be_deleted_and_moved_with_their_folder(many):
    Results(many)
    moved = many.rename(many.with_name("moved"))
    (pack,) = packed(moved)
    assert seeds(moved) == [0, 1, 2, 3, 4, 5]
    pack.unlink()
    assert seeds(moved) == [0, 1, 2, 3, 4, 5] and packed(moved) == [pack]


@pytest.mark.parametrize("ruin", [b"", b"hello", None])
def test_a_pack_that_cannot_be_read_is_made_again(many, ruin):
    Results(many)
    (pack,) = packed(many)
    pack.write_bytes(pack.read_bytes()[:-40] if ruin is None else ruin)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert runfiles.metadata(pack)


def test_a_run_file_among_the_packs_is_no_pack(many):
    (many / packs.FOLDER).mkdir()
    write_rows(many / packs.FOLDER / "0.pack", simulated({8: 0.1, 16: 0.5}, seed=99))
    assert seeds(many) == [0, 1, 2, 3, 4, 5]


def test_where_nothing_can_be_written_results_are_the_same(many):
    (many / packs.FOLDER).write_text("a file, where a folder would be")
    assert seeds(many) == [0, 1, 2, 3, 4, 5]


def test_overlapping_packs_count_every_run_once(many):
    files = packs.state(many, runfiles.find(many))
    names = list(files)
    for part in (names, names[1:], names[:2]):
        assert packs.write(many, {name: files[name] for name in part})
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert len(packed(many)) == 3


def test_several_at_once_leave_one_pack_and_see_everything(many):
    found = []
    threads = [threading.Thread(target=lambda: found.append(Results(many).boards("tvd"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(boards == found[0] for boards in found)
    assert len(packed(many)) == 1


def test_among_many_files_the_broken_ones_are_named_and_the_others_are_packed(many):
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
        assert board.rows[0].seeds == 27
        assert packed(many)


def test_a_full_disk_leaves_no_part_of_a_pack(many, monkeypatch):
    def full(handle):
        raise OSError("no space left on device")

    monkeypatch.setattr(runfiles.os, "fsync", full)
    assert seeds(many) == [0, 1, 2, 3, 4, 5]
    assert packed(many) == []


@pytest.mark.parametrize("order", range(10))
def test_a_mean_between_two_rounds_the_same_way_in_whatever_order_its_seeds_are_added(tmp_path, order):
    values = [0.51825, 0.335, 0.9052, 0.7815, 0.7253]  # their mean is 0.65305, give or take the rounding of a sum
    random.Random(order).shuffle(values)
    for seed, value in enumerate(values):
        write_rows(tmp_path / f"{seed}.parquet", simulated({16: value}, seed=seed) + simulated({8: 0.5}, seed=seed))
    (board,) = Results(tmp_path).boards("tvd")
    assert board.rows[0].cell("length", 16).mean == 0.6531
