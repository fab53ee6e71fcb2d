from __future__ import annotations

import os
import random
import statistics
import threading
from collections import defaultdict

import duckdb
import numpy as np
import pytest
import scipy.stats
from conftest import corrupt, simulated, write_rows

import lgbench
from lgbench import UsageError, runfiles
from lgbench.ranking import leaderboard, packs
from lgbench.ranking.leaderboard import Results
from lgbench.ranking.statistics import standings

LENGTHS = range(20)
TRAINED = 6


def boards_by_hand(rows, metric, name=None):
    """What boards are made of, in plain Python: {board: (train length, {column: {seed: value}}, diverged, unlearned)}."""
    values = {}  # one value a model, task and length, whatever holds it
    for row in rows:
        if row["length"] is not None and name in (None, row["family"], row["task"]):
            entry = row["entry"] + ("" if row["weights"] == "raw" else "@" + row["weights"])
            board = row["task"] if name == row["task"] != row["family"] else row["family"]
            place = (board, row["task_version"], row["protocol"])
            values[row["metric"], place, entry, row["seed"], row["length"], row["task"]] = row
    boards = {}
    for place in {key[1] for key in values if key[0] == metric}:
        own = {key[2:]: row for key, row in values.items() if key[:2] == (metric, place)}
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
        distances = {key[2:]: row["value"] for key, row in values.items() if key[:2] == ("tvd", place)}
        boards[place] = (trained, dict(columns), diverged, unlearned_by_hand(distances, shown & set(range(1, trained + 1))))
    return boards


def unlearned_by_hand(distances, lengths):
    """Which seeds have not learned a task, {entry: {task: seeds}}, from {(entry, seed, length, task): TVD}."""
    found = defaultdict(lambda: defaultdict(set))
    for entry, seed, _, task in distances:
        own = [distances.get((entry, seed, length, task)) for length in lengths]
        known = [value for value in own if value is not None]
        if not known or statistics.fmean(known) >= 0.1:
            found[entry][task].add(seed)
    return found


def random_rows(seed, tasks=("alpha-1", "alpha-2", "beta"), metrics=("tvd", "accuracy")):
    draw = random.Random(seed)
    rows = []
    for task in tasks:
        for entry in ("a+x", "a+y", "b+x"):
            for model in range(draw.randint(1, 4)):
                if draw.random() < 0.1:
                    continue
                diverged = draw.choice([None, None, None, 17])
                holds = draw.choice([0, 4, 12, 99])  # up to this length it errs little
                for weights in ("raw", "ema"):
                    for metric in metrics:
                        errors = {n: draw.choice([None, 0.0, 1.0, *(draw.random() for _ in range(9))]) for n in LENGTHS}
                        errors = {n: error / 8 if error and n <= holds else error for n, error in errors.items()}
                        values = {n: 1 - e if metric == "accuracy" and e is not None else e for n, e in errors.items()}
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
                trained, columns, diverged, unlearned = expected[board.name, board.task_version, board.protocol]
                assert board.train_length == trained
                check_cells(board, columns)
                check_seeds(board, columns, diverged, unlearned)
                check_order(board, columns)
                check_effective_lengths(board, columns)


def check_cells(board, columns):
    cells = {(row.entry, c.kind, c.length): (row, c) for row in board.rows for c in row.cells}
    assert cells.keys() == columns.keys()
    for key, by_seed in columns.items():
        (row, cell), values, n = cells[key], list(by_seed.values()), len(by_seed)
        assert row.cell(*key[1:]) is cell
        assert cell.n == n
        assert is_rounded(cell.mean, statistics.fmean(values))
        assert [value is None for value in cell.values] == [seed not in by_seed for seed in row.seeds]
        for seed, value in zip(row.seeds, cell.values, strict=True):
            assert value is None or is_rounded(value, by_seed[seed])
        if n == 1:
            assert (cell.low, cell.high) == (None, None)
        else:
            reach = scipy.stats.t.ppf(0.975, n - 1) * statistics.stdev(values) / n**0.5
            assert is_rounded(cell.low, max(0, statistics.fmean(values) - reach))
            assert is_rounded(cell.high, min(1, statistics.fmean(values) + reach))


def is_rounded(shown, value):
    return shown == round(shown, 4) and shown == pytest.approx(value, abs=5.001e-5)


def check_seeds(board, columns, diverged, unlearned):
    for row in board.rows:
        own = {seed for (entry, _, _), by_seed in columns.items() if entry == row.entry for seed in by_seed}
        assert row.seeds == tuple(sorted(own))
        assert row.diverged == tuple(sorted(own & diverged[row.entry]))
        lost = {task: seeds & own for task, seeds in unlearned[row.entry].items() if seeds & own}
        assert row.unlearned_tasks == {task: len(seeds) for task, seeds in lost.items()}
        assert row.unlearned == tuple(sorted(set().union(*lost.values())))


def check_order(board, columns):
    """The best score first; among equal ones the best in range, then the first by name. Those without a score come last."""
    sign = 1 if board.metric == "tvd" else -1

    def place(entry):
        means = [statistics.fmean(columns[entry, column, None].values()) for column in ("in range", "score")]
        return round(sign * means[1], 12), round(sign * means[0], 12), entry

    scored = sorted((entry for entry, column, _ in columns if column == "score"), key=place)
    assert [row.entry for row in board.rows][: len(scored)] == scored
    seeds = sorted({seed for by_seed in columns.values() for seed in by_seed})
    values = [[sign * columns[entry, "score", None].get(seed, np.nan) for seed in seeds] for entry in scored]
    for row, expected in zip(board.rows, standings(np.array(values)), strict=False):
        assert (row.tier, row.places) == (expected.tier, (expected.best_place, expected.worst_place))
        assert row.ahead_of == tuple(scored[other] for other in expected.ahead_of)
    for row in board.rows[len(scored) :]:
        assert (row.tier, row.places, row.ahead_of) == (None, None, ())


def check_effective_lengths(board, columns):
    for row in board.rows:
        by_length = sorted(
            (length, by_seed) for (entry, _, length), by_seed in columns.items() if entry == row.entry and length
        )
        longest = 0
        for length, by_seed in by_length:
            mean = round(statistics.fmean(by_seed.values()), 4)
            if not (mean < 0.1 if board.metric == "tvd" else mean > 0.9):
                break
            longest = length
        assert row.effective_length == longest
        assert row.effective_multiple == pytest.approx(longest / TRAINED, abs=5.1e-5)


def write_seeds(folder, entries, **columns):
    """A run file for each seed of {entry: [(in range, beyond), ...]}."""
    for entry, pairs in entries.items():
        for seed, (near, far) in enumerate(pairs):
            write_rows(folder / f"{entry}{seed}.parquet", simulated({8: near, 16: far}, entry=entry, seed=seed, **columns))


NOISE = (0.0, 0.01, -0.02, 0.015, -0.005)


@pytest.mark.parametrize(("metric", "best"), [("tvd", "low"), ("accuracy", "high"), ("roc_auc", "high")])
def test_the_best_comes_first_whichever_way_a_metric_points(tmp_path, metric, best):
    entries = {"low": [(0.5, 0.2 + noise) for noise in NOISE], "high": [(0.5, 0.8 + noise / 2) for noise in NOISE]}
    write_seeds(tmp_path, entries, metric=metric)
    (board,) = Results(tmp_path).boards(metric)
    first, second = board.rows
    assert first.entry == best
    assert (first.tier, first.places, first.ahead_of) == (1, (1, 1), (second.entry,))
    assert (second.tier, second.places, second.ahead_of) == (2, (2, 2), ())


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_separate_nobody(tmp_path, seeds):
    write_seeds(tmp_path, {"low": [(0.5, 0.1), (0.5, 0.11)][:seeds], "high": [(0.5, 0.9), (0.5, 0.92)][:seeds]})
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.entry, row.tier, row.places) for row in board.rows] == [("low", 1, (1, 2)), ("high", 1, (1, 2))]


def test_equal_scores_are_ordered_by_the_training_range_and_by_name_and_share_a_tier(tmp_path):
    means = {"a-worse": (0.4, 0.5), "first": (0.1, 0.5), "also-first": (0.1, 0.5), "last": (0.0, 0.6)}
    tilt = {"last": 0.5}
    entries = {e: [(near, far + tilt.get(e, 1) * noise) for noise in NOISE] for e, (near, far) in means.items()}
    write_seeds(tmp_path, entries)
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.tier, row.places, row.entry) for row in board.rows] == [
        (1, (1, 3), "also-first"),
        (1, (1, 3), "first"),
        (1, (1, 3), "a-worse"),
        (2, (4, 4), "last"),
    ]


@pytest.mark.parametrize(("difference", "places"), [(2e-15, [(1, 2), (1, 2)]), (1e-6, [(1, 1), (2, 2)])])
def test_entries_that_differ_by_the_rounding_of_sums_are_equal_and_more_than_that_is_a_difference(tmp_path, difference, places):
    better = [(0.1, 0.3 + noise) for noise in NOISE]
    write_seeds(tmp_path, {"better": better, "a-little-worse": [(near, far + difference) for near, far in better]})
    (board,) = Results(tmp_path).boards("tvd")
    assert [row.places for row in board.rows] == places
    assert [row.tier for row in board.rows] == [1, len(set(places))]
    assert board.rows[0].entry == ("better" if places[0] == (1, 1) else "a-little-worse")
    assert board.rows[0].cells == board.rows[1].cells  # whose four digits cannot show it


def test_pairs_are_tested_on_the_seeds_that_both_have(tmp_path):
    harder = [0.0, 0.1, 0.2, 0.3, 0.4]
    write_seeds(tmp_path, {"short": [(0.1, 0.1 + more + noise / 9) for more, noise in zip(harder, NOISE, strict=True)][:3]})
    write_seeds(tmp_path, {"whole": [(0.1, 0.2 + more) for more in harder]})
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.entry, row.seeds, row.ahead_of) for row in board.rows] == [
        ("short", (0, 1, 2), ("whole",)),
        ("whole", (0, 1, 2, 3, 4), ()),
    ]


def test_an_entry_without_numbers_beyond_the_training_range_comes_last_without_a_place(tmp_path):
    write_rows(tmp_path / "1.parquet", simulated({8: 0.9, 16: 0.9}, entry="tested"))
    write_rows(tmp_path / "2.parquet", simulated({8: 0.0, 16: None}, entry="untested"))
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.entry, row.tier, row.places) for row in board.rows] == [("tested", 1, (1, 1)), ("untested", None, None)]
    assert board.rows[1].cell("score") is None


def test_where_nothing_beyond_the_training_range_was_measured_the_range_decides(tmp_path):
    for entry, far, near in (("worse", 0.3, 0.01), ("better", 0.1, 0.0)):
        for seed, noise in enumerate(NOISE):
            write_rows(tmp_path / f"{entry}{seed}.parquet", simulated({8: far + near * noise}, entry=entry, seed=seed))
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.entry, row.tier, row.places) for row in board.rows] == [("better", 1, (1, 1)), ("worse", 2, (2, 2))]


def test_a_seed_has_learned_a_task_if_its_tvd_over_the_shown_lengths_of_the_training_range_is_small(tmp_path):
    def write(seed, task, values, **columns):
        rows = simulated(values, 6, task=task, family="alpha", seed=seed, metric="tvd", **columns)
        rows += simulated(dict.fromkeys(values, 0.5), 6, task=task, family="alpha", seed=seed, metric="accuracy", **columns)
        write_rows(tmp_path / f"{seed}{task}{columns.get('weights')}.parquet", rows)

    learned = {1: 0.0, 2: 0.0, 3: 1.0, 4: 0.2, 5: 1.0, 6: 0.199, 8: 1.0}  # neither 3 nor 5 is shown, 8 is beyond
    cases = [learned, learned | {6: 0.2}, learned | {6: None, 4: 0.1}, dict.fromkeys(learned), learned]
    for seed, values in enumerate(cases):
        write(seed, "alpha-1", values)
        write(seed, "alpha-2", dict.fromkeys(learned, 0.5 if seed == 1 else 0.09))
    write(4, "alpha-1", dict.fromkeys(learned, 1.0), weights="ema")
    write(4, "alpha-2", learned, weights="ema")
    results = Results(tmp_path)
    (board,) = results.boards("accuracy", "alpha")
    found = {row.entry: (row.seeds, row.unlearned, row.unlearned_tasks) for row in board.rows}
    assert found == {
        "arch+norm": ((0, 1, 2, 3, 4), (1, 3), {"alpha-1": 2, "alpha-2": 1}),
        "arch+norm@ema": ((4,), (4,), {"alpha-1": 1}),
    }
    (board,) = results.boards("accuracy", "alpha-2")
    assert {row.entry: row.unlearned_tasks for row in board.rows} == {"arch+norm": {"alpha-2": 1}, "arch+norm@ema": {}}


def test_without_tvd_nobody_is_said_not_to_have_learned(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.1, 16: 0.1}, metric="accuracy"))
    (board,) = Results(tmp_path).boards("accuracy")
    assert board.rows[0].unlearned == () and board.rows[0].unlearned_tasks == {}


@pytest.mark.parametrize(("metric", "good", "bad"), [("tvd", 0.0999, 0.1), ("accuracy", 0.9001, 0.9), ("roc_auc", 0.9001, 0.9)])
def test_the_effective_length_is_the_longest_shown_length_up_to_which_the_mean_is_good(tmp_path, metric, good, bad):
    cases = {
        "all": {2: good, 4: good, 6: good, 8: good, 16: good},
        "gap": {2: good, 4: good, 6: good, 8: bad, 16: good},
        "hidden-gap": {2: good, 4: good, 5: bad, 6: good, 7: bad, 8: good, 16: bad},
        "none": {2: bad, 4: good, 6: good, 8: good, 16: good},
    }
    for entry, values in cases.items():
        for seed in (0, 1):  # of which the mean counts
            shifted = {n: value + (0.05 if seed else -0.05) for n, value in values.items()}
            write_rows(tmp_path / f"{entry}{seed}.parquet", simulated(shifted, 6, entry=entry, seed=seed, metric=metric))
    (board,) = Results(tmp_path).boards(metric)
    found = {row.entry: (row.effective_length, row.effective_multiple) for row in board.rows}
    assert found == {"all": (16, 2.6667), "gap": (6, 1.0), "hidden-gap": (8, 1.3333), "none": (0, 0.0)}


def test_an_interval_leaves_out_what_no_score_can_be(tmp_path):
    write_seeds(tmp_path, {"arch": [(0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.1, 0.9)]})
    (board,) = Results(tmp_path).boards("tvd")
    near, far = (board.rows[0].cell(kind) for kind in ("in range", "score"))
    assert near.low == 0 < near.mean < near.high < 0.1
    assert 0.9 < far.low < far.mean < far.high == 1


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
    assert (cell.n, cell.mean, cell.values) == (2, 0.4, (0.2, 0.6))


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
    assert [(row.entry, row.cell("score").mean, row.seeds) for row in family.rows] == [("whole", 0.2, (0,))]
    assert family.tasks == 2
    assert sorted(family.incomplete) == [
        "half seed 0 has 1 of the 2 tasks and is left out",
        "whole seed 1 has 1 of the 2 tasks and is left out",
    ]
    (single,) = results.boards("tvd", "alpha-1")
    assert [(row.entry, row.seeds) for row in single.rows] == [("whole", (0, 1))]
    assert single.incomplete == () and single.tasks == 1


def test_diverged_seeds_count_and_are_counted(tmp_path):
    for seed, step in enumerate([None, 7, 7]):
        rows = simulated({8: 0.5, 16: 1.0 if step else 0.4}, seed=seed, diverged_step=step)
        write_rows(tmp_path / f"{seed}.parquet", rows)
    (board,) = Results(tmp_path).boards("tvd")
    (row,) = board.rows
    assert (row.seeds, row.diverged) == ((0, 1, 2), (1, 2))
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
    assert board.rows[0].seeds == tuple(found)
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
        assert len(board.rows[0].seeds) == 27
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
