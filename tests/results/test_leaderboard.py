from __future__ import annotations

import random
import statistics
import struct
from collections import defaultdict

import numpy as np
import pytest
import scipy.stats
from helpers.run_files import simulated, write_rows

import lgbench_measurements
from lgbench import UsageError
from lgbench.experiment.record import ProtocolUse
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import descriptions
from lgbench.results.statistics import standings

LENGTHS = range(20)
TRAINED = 6


def boards_by_hand(rows, metric, name=None):
    """The values of boards, in plain Python: {board: (train length, {column: {seed: value}}, diverged, not fitted)}."""
    values = {}  # one value a model, task and length, whatever holds it
    for row in rows:
        if row["length"] is not None and name in (None, row["family"], row["task"]):
            entry = row["entry"] + ("" if row["weights"] == "raw" else "@" + row["weights"])
            board = row["task"] if name == row["task"] != row["family"] else row["family"]
            place = (board, row["task_version"], row["protocol"], row["protocol_version"])
            values[row["metric"], place, entry, row["seed"], row["length"], row["task"]] = row
    boards = {}
    for place in {key[1] for key in values if key[0] == metric}:
        own = {key[2:]: row for key, row in values.items() if key[:2] == (metric, place)}
        tasks = {task for _, _, _, task in own}
        trained = max(length for (_, _, length, _), row in own.items() if row["in_distribution"])
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
            for column, chosen in (("ID", near), ("OOD", far)):
                if chosen:
                    columns[entry, column, None][seed] = statistics.fmean(chosen)
        distances = {key[2:]: row["value"] for key, row in values.items() if key[:2] == ("tvd", place)}
        boards[place] = (trained, dict(columns), diverged, not_fitted_by_hand(distances, shown & set(range(1, trained + 1))))
    return boards


def not_fitted_by_hand(distances, lengths):
    """Which seeds have not fitted a task, {entry: {task: seeds}}, from {(entry, seed, length, task): TVD}."""
    found = defaultdict(lambda: defaultdict(set))
    for entry, seed, _, task in distances:
        for shortest in (0, max(lengths) / 2):  # the training range, and its upper half
            own = [distances.get((entry, seed, length, task)) for length in lengths if length > shortest]
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


@pytest.mark.parametrize("seed", range(3))
def test_boards_equal_a_computation_by_hand(tmp_path, seed):
    rows = random_rows(seed)
    runs = defaultdict(list)
    for row in rows:
        runs[row["entry"], row["task"], row["seed"]].append(row)
    for number, own in enumerate(runs.values()):
        write_rows(tmp_path / f"{number}.parquet", own)
    results = Results(tmp_path)
    for metric in ("tvd", "accuracy"):
        for name in (None, "alpha", "alpha-2", "beta"):
            expected = boards_by_hand(rows, metric, name)
            found = results.boards(metric, name)
            assert [place_of(b) for b in found] == sorted(expected)
            for board in found:
                trained, columns, diverged, not_fitted = expected[place_of(board)]
                assert board.train_length == trained
                check_cells(board, columns)
                check_seeds(board, columns, diverged, not_fitted)
                check_order(board, columns, not_fitted)
                check_effective_lengths(board, columns)


def place_of(board):
    return board.name, board.task_version, board.protocol.name, board.protocol.version


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
    return shown == round(shown, 6) and shown == pytest.approx(value, abs=5.001e-7)


def check_seeds(board, columns, diverged, not_fitted):
    for row in board.rows:
        own = {seed for (entry, _, _), by_seed in columns.items() if entry == row.entry for seed in by_seed}
        assert row.seeds == tuple(sorted(own))
        assert row.diverged == tuple(sorted(own & diverged[row.entry]))
        lost = {task: seeds & own for task, seeds in not_fitted[row.entry].items() if seeds & own}
        assert row.not_fitted_tasks == {task: len(seeds) for task, seeds in lost.items()}
        assert row.not_fitted == tuple(sorted(set().union(*lost.values())))


def check_order(board, columns, not_fitted):
    """The best OOD mean first, then the best ID mean, then the first name. Entries without an OOD mean come last.

    Entries of which no seed has fitted every task are not in the first tier.
    """
    sign = 1 if board.metric.name == "tvd" else -1

    def place(entry):
        means = [statistics.fmean(columns[entry, column, None].values()) for column in ("ID", "OOD")]
        return round(sign * means[1], 12), round(sign * means[0], 12), entry

    scored = sorted((entry for entry, column, _ in columns if column == "OOD"), key=place)
    assert [row.entry for row in board.rows][: len(scored)] == scored
    seeds = sorted({seed for by_seed in columns.values() for seed in by_seed})
    values = [[sign * columns[entry, "OOD", None].get(seed, np.nan) for seed in seeds] for entry in scored]
    own = {row.entry: set(row.seeds) for row in board.rows}
    tasks = {task for lost in not_fitted.values() for task in lost} if board.tasks > 1 else {board.name}
    eligible = np.array([not own[e] <= set().union(*(not_fitted[e].get(t, set()) for t in tasks)) for e in scored], dtype=bool)
    for row, expected in zip(board.rows, standings(np.array(values), eligible), strict=False):
        assert (row.tier, row.rank_interval) == (expected.tier, (expected.best_rank, expected.worst_rank))
        assert row.better_than == tuple(scored[other] for other in expected.better_than)
    for row in board.rows[len(scored) :]:
        assert (row.tier, row.rank_interval, row.better_than) == (None, None, ())


def check_effective_lengths(board, columns):
    for row in board.rows:
        by_length = sorted(
            (length, by_seed) for (entry, _, length), by_seed in columns.items() if entry == row.entry and length
        )
        longest = 0
        for length, by_seed in by_length:
            mean = round(statistics.fmean(by_seed.values()), 6)
            if not (mean < 0.1 if board.metric.name == "tvd" else mean > 0.9):
                break
            longest = length
        assert row.effective_length == longest
        assert row.effective_multiple == pytest.approx(longest / TRAINED, abs=5.1e-5)


def write_seeds(folder, entries, **columns):
    """A run file for each seed of {entry: [(ID, OOD), ...]}."""
    for entry, pairs in entries.items():
        for seed, (near, far) in enumerate(pairs):
            write_rows(folder / f"{entry}{seed}.parquet", simulated({8: near, 16: far}, entry=entry, seed=seed, **columns))


NOISE = (0.0, 0.01, -0.02, 0.015, -0.005)


def test_equal_ood_means_are_ordered_by_the_id_mean_and_by_name_and_share_a_tier(tmp_path):
    means = {"a-worse": (0.4, 0.5), "first": (0.05, 0.5), "also-first": (0.05, 0.5), "last": (0.0, 0.6)}
    tilt = {"last": 0.5}
    entries = {e: [(near, far + tilt.get(e, 1) * noise) for noise in NOISE] for e, (near, far) in means.items()}
    write_seeds(tmp_path, entries)
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.tier, row.rank_interval, row.entry) for row in board.rows] == [
        (1, (1, 3), "also-first"),
        (1, (1, 3), "first"),
        (2, (1, 3), "a-worse"),  # which no seed has fitted
        (3, (4, 4), "last"),
    ]


@pytest.mark.parametrize(("difference", "ranks"), [(2e-15, [(1, 2), (1, 2)]), (1e-8, [(1, 1), (2, 2)])])
def test_entries_that_differ_by_the_rounding_of_sums_are_equal_and_more_than_that_is_a_difference(tmp_path, difference, ranks):
    better = [(0.05, 0.3 + noise) for noise in NOISE]
    write_seeds(tmp_path, {"better": better, "a-little-worse": [(near, far + difference) for near, far in better]})
    (board,) = Results(tmp_path).boards("tvd")
    assert [row.rank_interval for row in board.rows] == ranks
    assert [row.tier for row in board.rows] == [1, len(set(ranks))]
    assert board.rows[0].entry == ("better" if ranks[0] == (1, 1) else "a-little-worse")
    assert board.rows[0].cells == board.rows[1].cells  # whose six digits cannot show it


def test_where_nothing_ood_was_measured_the_id_mean_decides(tmp_path):
    for entry, far, near in (("worse", 0.3, 0.01), ("better", 0.1, 0.0)):
        for seed, noise in enumerate(NOISE):
            write_rows(tmp_path / f"{entry}{seed}.parquet", simulated({8: far + near * noise}, entry=entry, seed=seed))
    (board,) = Results(tmp_path).boards("tvd")
    assert [(row.entry, row.tier, row.rank_interval) for row in board.rows] == [("better", 2, (1, 1)), ("worse", 3, (2, 2))]


@pytest.mark.parametrize(("level", "effective"), [(0.2, 16), (0.07, None)])
def test_where_the_context_free_baseline_passes_the_threshold_there_is_no_effective_length(tmp_path, level, effective):
    write_seeds(tmp_path, {"a+x": [(0.01, 0.05)]})
    write_rows(tmp_path / "chance.parquet", simulated({8: level, 16: level}, entry="a+x", weights="chance"))
    (board,) = Results(tmp_path).boards("tvd")
    assert [row.effective_length for row in board.rows] == [effective]


def test_an_entry_behind_the_context_free_baseline_or_without_a_fit_is_not_in_the_first_tier(tmp_path):
    entries = {"fitted": (0.01, 0.3, 1), "lost": (0.3, 0.3, 2), "behind": (0.01, 0.6, 20)}
    own = {e: [(near, far + width * noise) for noise in NOISE] for e, (near, far, width) in entries.items()}
    write_seeds(tmp_path, own)
    write_rows(tmp_path / "chance.parquet", simulated({8: 0.5, 16: 0.5}, entry="fitted", weights="chance"))
    (board,) = Results(tmp_path).boards("tvd")
    assert {row.entry: (row.tier, row.rank_interval[0]) for row in board.rows} == {
        "fitted": (1, 1),
        "lost": (2, 1),
        "behind": (2, 1),
    }


CHANGED = {"protocol": "quick", "protocol_version": 1, "changes": [("train.lr", "0.1")]}


def test_versions_protocols_and_changes_are_never_mixed(tmp_path):
    kinds = [
        {"task_version": 1, "protocol": "quick", "protocol_version": 1},
        {"task_version": 2, "protocol": "quick", "protocol_version": 1},
        {"task_version": 1, "protocol": "quick", "protocol_version": 2},
        {"task_version": 1, "protocol": "standard", "protocol_version": 1},
        {"task_version": 1, **CHANGED},
        {"task_version": 1, **CHANGED, "changes": [("train.lr", "0.1"), ("train.steps", "5")]},
        {"task_version": 1, **CHANGED, "changes": [("train.lr", "0.1 train.steps=5")]},  # which has the same label
        {"task_version": 1, "protocol": "quick", "protocol_version": 1, "metric_version": 2},
    ]
    first, second = descriptions(lgbench_measurements.lgbench_measurements()), [{"name": "tvd", "version": 2}]
    second = [one | second[0] for one in first if one["name"] == "tvd"]
    for index, kind in enumerate(kinds):
        rows = simulated({8: 0.0, 16: index / 10}, **kind)
        write_rows(tmp_path / f"{index}.parquet", rows, measurements=first + second)
    results = Results(tmp_path)

    def found(protocol=None):
        boards = results.boards("tvd", protocol=protocol)
        assert all(len(board.rows) == 1 and board.rows[0].seeds == (0,) for board in boards)
        return {round(10 * board.rows[0].cell("OOD").mean): board for board in boards}

    for index, board in found().items():
        kind = {"protocol_version": 1, "changes": [], "metric_version": 1} | kinds[index]
        assert (board.task_version, board.metric.version) == (kind["task_version"], kind["metric_version"])
        assert board.protocol == ProtocolUse(kind["protocol"], kind["protocol_version"], tuple(kind["changes"]))
    assert found().keys() == set(range(8))
    assert found("quick").keys() == {0, 1, 2, 7}
    assert found("quick/1").keys() == {0, 1, 7}
    assert found("quick/1 train.lr=0.1").keys() == {4}
    assert found("quick/1 train.lr=0.1 train.steps=5").keys() == {5, 6}
    assert found("standard").keys() == {3}
    order = [
        (board.task_version, str(board.protocol), board.metric.version) for board in results.boards("tvd", protocol="quick")
    ]
    assert order == [(1, "quick/2", 1), (2, "quick/1", 1), (1, "quick/1", 2), (1, "quick/1", 1)]


def test_a_run_that_two_files_hold_counts_once(tmp_path):
    for name in ("here", "copies/there", "copies/again"):
        write_rows(tmp_path / f"{name}.parquet", simulated({8: 0.1, 16: 0.2}))
    write_rows(tmp_path / "other.parquet", simulated({8: 0.3, 16: 0.6}, seed=1))
    (board,) = Results(tmp_path).boards("tvd")
    cell = board.rows[0].cell("length", 16)
    assert (cell.n, cell.mean, cell.values) == (2, 0.4, (0.2, 0.6))


@pytest.mark.parametrize("order", range(3))
def test_a_mean_between_two_rounds_the_same_way_in_whatever_order_its_seeds_are_added(tmp_path, order):
    values = [0.8444, 0.758, 0.4206, 0.2589, 0.2406525]  # their mean is 0.5045105, give or take the rounding of a sum
    random.Random(order).shuffle(values)
    for seed, value in enumerate(values):
        write_rows(tmp_path / f"{seed}.parquet", simulated({16: value}, seed=seed) + simulated({8: 0.5}, seed=seed))
    (board,) = Results(tmp_path).boards("tvd")
    assert board.rows[0].cell("length", 16).mean == 0.50451


def test_the_context_free_level_is_no_entry_and_stands_on_the_board_in_its_columns(tmp_path):
    for seed in (0, 1):
        for task, shift in (("alpha-1", 0.0), ("alpha-2", 0.2)):
            columns = {"task": task, "family": "alpha", "seed": seed}
            rows = simulated({4: 0.1, 8: 0.1, 16: 0.2, 32: 0.3}, **columns)
            rows += simulated({4: 0.2 + shift, 8: 0.4 + shift, 16: 0.5, 32: 0.7}, weights="chance", **columns)
            write_rows(tmp_path / f"{task}{seed}.parquet", rows)
    results = Results(tmp_path)
    (board,) = results.boards("tvd")
    assert [row.entry for row in board.rows] == ["arch+norm"]
    found = {(level.kind, level.length): level.mean for level in board.context_free}
    by_length = {("length", 4): 0.3, ("length", 8): 0.5, ("length", 16): 0.5, ("length", 32): 0.7}
    assert found == by_length | {("ID", None): 0.4, ("OOD", None): 0.6}
    assert board.context_free_level("OOD") == 0.6 and board.context_free_level("length", 4) == 0.3
    (single,) = results.boards("tvd", "alpha-1")
    assert (single.context_free_level("ID"), single.context_free_level("length", 5)) == (0.3, None)


def test_a_family_of_which_one_task_has_no_context_free_level_has_none(tmp_path):
    for task in ("alpha-1", "alpha-2"):
        rows = simulated({8: 0.1, 16: 0.2}, task=task, family="alpha")
        rows += simulated({8: 0.4, 16: 0.5}, task=task, family="alpha", weights="chance") if task == "alpha-1" else []
        write_rows(tmp_path / f"{task}.parquet", rows)
    results = Results(tmp_path)
    assert results.boards("tvd")[0].context_free == ()
    assert results.boards("tvd", "alpha-1")[0].context_free_level("OOD") == 0.5


def test_one_strange_file_does_not_move_the_context_free_level(tmp_path):
    for seed, level in enumerate((0.4, 0.4, 0.01)):
        rows = simulated({8: 0.1, 16: 0.2}, seed=seed) + simulated({8: level, 16: level}, seed=seed, weights="chance")
        write_rows(tmp_path / f"{seed}.parquet", rows)
    assert Results(tmp_path).boards("tvd")[0].context_free_level("ID") == 0.4


def test_a_seed_that_lacks_runs_and_one_whose_runs_lack_the_metric_are_told_from_each_other(tmp_path):
    for seed in range(3):
        for task in ("alpha-1", "alpha-2"):
            rows = simulated({8: 0.1, 16: 0.2}, seed=seed, task=task, family="alpha")
            if (seed, task) != (1, "alpha-2"):
                rows += simulated({8: 0.9, 16: 0.8}, seed=seed, task=task, family="alpha", metric="accuracy")
            if (seed, task) != (2, "alpha-1"):
                write_rows(tmp_path / f"{task}{seed}.parquet", rows)
    (board,) = Results(tmp_path).boards("accuracy")
    assert [row.seeds for row in board.rows] == [(0,)]
    assert board.lacking == {"arch+norm": 1}
    assert board.incomplete == ("arch+norm: seed 2 lacks alpha-1 and is left out",)


def test_seeds_and_averages_that_lack_the_same_runs_are_left_out_in_one_sentence(tmp_path):
    def write(entry, seed, task, *weights):
        rows = [simulated({8: 0.1}, entry=entry, seed=seed, task=task, family="alpha", weights=own) for own in weights]
        write_rows(tmp_path / f"{entry}{task}{seed}.parquet", [row for own in rows for row in own])

    for seed in range(3):
        write("transformer+whole", seed, "alpha-1", "raw")
        write("transformer+whole", seed, "alpha-2", "raw")
        write("transformer+lost", seed, "alpha-1", "raw", "ema")
        write("transformer+half", seed, "alpha-1", "raw", "ema")
        write("transformer+half", seed, "alpha-2", "raw")
    (board,) = Results(tmp_path).boards("tvd")
    assert board.incomplete == (
        "half@ema: seeds 0 to 2 lack alpha-2 and are left out",
        "lost: seeds 0 to 2 lack alpha-2 and are left out",
    )


UNBOUNDED = descriptions([lgbench_measurements.TotalVariation()])[0] | {"name": "kl", "high": None, "threshold": None}


def test_a_metric_without_a_greatest_value_and_a_threshold_has_open_intervals_and_no_effective_length(tmp_path):
    for seed, noise in enumerate(NOISE[:3]):
        for entry, mean in (("good+norm", 0.02), ("bad+norm", 5.0)):
            rows = simulated({8: 0.01, 16: mean * (1 + 40 * noise)}, entry=entry, seed=seed, metric="kl")
            write_rows(tmp_path / f"{entry}{seed}.parquet", rows, measurements=[UNBOUNDED])
    (board,) = Results(tmp_path).boards("kl")
    assert [row.entry for row in board.rows] == ["good+norm", "bad+norm"]
    good, bad = (row.cell("OOD") for row in board.rows)
    assert good.low == bad.low == 0 and bad.high > bad.mean > 1
    assert [(row.effective_length, row.effective_multiple) for row in board.rows] == [(None, None)] * 2
    assert [row.not_fitted for row in board.rows] == [(), ()]


def test_a_metric_that_no_file_describes_is_not_offered(tmp_path):
    write_rows(tmp_path / "run.parquet", simulated({8: 0.5}) + simulated({8: 0.5}, metric="kl"))
    results = Results(tmp_path)
    assert results.metric_names[0] == "tvd" and "kl" not in results.metric_names
    with pytest.raises(UsageError, match="no metric 'kl'.*known: .*tvd"):
        results.boards("kl")


@pytest.mark.parametrize("metric", ["tvd", "accuracy"])
def test_a_family_has_each_task_in_its_newest_version_and_an_older_one_has_a_board_of_its_own(tmp_path, metric):
    versions = {"alpha-1": (1,), "alpha-2": (1, 2), "alpha-3": (2,)}
    for task, version in ((task, version) for task, own in versions.items() for version in own):
        for seed in range(2):
            columns = {"task": task, "family": "alpha", "task_version": version, "seed": seed, "metric": metric}
            write_rows(tmp_path / f"{task}.{version}.{seed}.parquet", simulated({8: 0.1, 16: version / 10}, **columns))
    newest, older = Results(tmp_path).boards(metric, "alpha")
    assert (newest.task_version, newest.tasks) == (2, 3) and (older.task_version, older.tasks) == (1, 2)
    assert newest.rows[0].cell("OOD").mean == pytest.approx((0.1 + 0.2 + 0.2) / 3, abs=1e-4)
    assert older.rows[0].cell("OOD").mean == pytest.approx(0.1)
    assert not newest.incomplete and not older.incomplete
    assert [board.task_version for board in Results(tmp_path).boards(metric, "alpha-1")] == [1]


def test_of_two_files_of_a_run_with_different_numbers_the_first_counts_and_the_other_is_named(tmp_path):
    write_rows(tmp_path / "a.parquet", simulated({8: 0.1, 16: 0.2}))
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    assert not Results(tmp_path).left_out
    write_rows(tmp_path / "b.parquet", simulated({8: 0.1, 16: struct.unpack("f", struct.pack("f", 0.2))[0]}))
    assert not Results(tmp_path).left_out  # in float32, as of the package of published runs
    write_rows(tmp_path / "c.parquet", simulated({8: 0.1, 16: 0.9}))
    results = Results(tmp_path)
    assert results.boards("tvd")[0].rows[0].cell("OOD").mean == 0.2
    (said,) = results.left_out
    assert "c.parquet: " in said and "is 0.2 (n 4) and 0.9 (n 4); the first counts" in said
