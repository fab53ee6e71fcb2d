"""Overall boards: their numbers against rliable, SciPy and brute force, and which entries stand on them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from helpers.commands import lgbench
from helpers.run_files import simulated, write_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import lgbench_tasks
from lgbench.contracts.names import FAMILIES
from lgbench.results.leaderboard import Results
from lgbench.results.statistics import improvement, interquartile_mean, profile, resampled, stratified_interval

X = (np.arange(40) * 17 % 41 / 41).reshape(8, 5)
Y = (np.arange(50) * 23 % 31 / 31).reshape(10, 5)[:, ::-1]
"""Scores of two methods, runs by tasks, as rliable has them."""


def test_numbers_are_those_of_rliable():
    """rliable 1.2.0 said so: aggregate_iqm(X), aggregate_iqm(Y[:8]), probability_of_improvement(-X, -Y)."""
    assert interquartile_mean(X.T) == pytest.approx(0.4829268292682928, abs=1e-12)
    assert interquartile_mean(Y[:8].T) == pytest.approx(0.4935483870967741, abs=1e-12)
    assert improvement(X.T, Y.T)[0] == pytest.approx(0.51, abs=1e-12)
    np.testing.assert_allclose(profile(X.T, np.array([0.25, 0.5, 1.0])), [0.275, 0.525, 1.0])


scores = st.lists(st.integers(0, 20).map(lambda n: n / 20), min_size=1, max_size=7).map(np.array)


@settings(max_examples=40, deadline=None)
@given(st.lists(scores, min_size=1, max_size=4))
def test_the_interquartile_mean_is_that_of_copies_which_give_families_equal_numbers(families):
    """Copies of every score until all families have 420 times 4: then it is the trimmed mean of SciPy."""
    copies = np.concatenate([np.repeat(own, 1680 // len(own)) for own in families])
    assert interquartile_mean(families) == pytest.approx(scipy.stats.trim_mean(copies, 0.25), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=4))
def test_the_probability_of_improvement_is_counted_over_all_pairs_of_runs(pairs):
    shares = [np.mean([(a < b) + (a == b) / 2 for a in one for b in other]) for one, other in pairs]
    ones, others = zip(*pairs, strict=True)
    (value, low, high), (other, *_) = improvement(ones, others), improvement(others, ones)
    assert value == pytest.approx(np.mean(shares)) and value + other == pytest.approx(1)
    assert 0 <= low <= value <= high <= 1 and low < high


def test_on_one_family_a_sure_improvement_has_the_exact_interval_of_its_runs():
    expected = scipy.stats.binomtest(5, 5).proportion_ci(0.95, "exact")
    assert improvement([np.zeros(5)], [np.ones(7)]) == pytest.approx((1, expected.low, 1))


@pytest.mark.parametrize("shifts", [(0, 0, 0, 0, 0), (1, 1, 1, -1, -1), (9, 9, 9, -9, -9), (9, 1, 0, 0, -1)])
def test_the_interval_of_an_improvement_covers_it(shifts):
    rng = np.random.default_rng(0)
    truth, covered = np.mean([scipy.stats.norm.cdf(shift / np.sqrt(2)) for shift in shifts]), 0
    for _ in range(400):
        own, other = rng.normal(size=(2, 5, 5))
        _, low, high = improvement(own, other + np.array(shifts)[:, None])
        covered += low <= truth <= high
    assert covered / 400 >= 0.93


@settings(max_examples=40, deadline=None)
@given(st.lists(scores, min_size=1, max_size=4))
def test_a_profile_has_the_mean_over_families_of_the_share_of_runs(families):
    limits = np.array([0.0, 0.3, 0.5, 1.0])
    expected = [np.mean([np.mean(own <= limit) for own in families]) for limit in limits]
    np.testing.assert_allclose(profile(families, limits), expected, atol=1e-12)


def test_each_family_is_resampled_from_itself_and_the_same_way_every_time():
    families = [np.array([1.0, 2.0]), np.array([10.0, 20.0, 30.0])]
    draws = resampled(families, 3)
    assert [own.shape[-1] for own in draws] == [2, 3]
    assert [set(np.unique(own)) for own in draws] == [{1.0, 2.0}, {10.0, 20.0, 30.0}]
    assert all((one == other).all() for one, other in zip(draws, resampled(families, 3), strict=True))


def test_with_many_runs_the_interval_is_the_percentile_interval():
    rng = np.random.default_rng(0)
    families = list(rng.random((3, 400)))
    means = interquartile_mean(resampled(families))
    low, high = stratified_interval(means, families)
    assert (low, high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.002)


def test_a_family_with_one_seed_leaves_no_interval():
    families = [np.array([0.5]), np.array([0.1, 0.2])]
    assert np.isnan(stratified_interval(interquartile_mean(resampled(families)), families)).all()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 10])
@pytest.mark.parametrize("world", ["normal", "lognormal"])
def test_the_interval_covers_the_interquartile_mean_of_endlessly_many_runs(world, seeds):
    rng = np.random.default_rng(seeds)
    shift = np.array([0.1, 0.3, 0.5, 0.7, 0.9])[:, None]

    def draw(n):
        own = rng.normal(size=(5, n)) if world == "normal" else rng.lognormal(0, 0.5, (5, n)) - 1
        return shift + 0.1 * own

    truth, covered = interquartile_mean(draw(400_000)), 0
    for _ in range(400):
        families = draw(seeds)
        low, high = stratified_interval(interquartile_mean(resampled(families)), families)
        covered += low <= truth <= high
    assert 0.92 <= covered / 400 <= 0.985


PRE, GOOD, HALF, LOST = "transformer+pre-norm", "transformer+good", "transformer+half", "transformer+lost"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two families, one of them of two tasks. One entry ran one family alone, one is not causal; half the baseline is 0.2."""
    folder = tmp_path_factory.mktemp("overall")
    rng = np.random.default_rng(0)
    for task, family in (("alpha-1", "alpha"), ("alpha-2", "alpha"), ("beta", "beta")):
        for entry, level in ((PRE, 0.2), (GOOD, 0.1), (HALF, 0.3), (LOST, 0.0)):
            for seed in range(5):
                if (entry, family) == (HALF, "beta"):
                    continue
                columns = {"task": task, "family": family, "entry": entry, "seed": seed}
                rows = simulated({8: 0.01, 16: level + 0.01 * rng.random(), 32: level}, **columns)
                rows += simulated({8: 0.4, 16: 0.4, 32: 0.4}, weights="chance", **columns)
                if entry == LOST:
                    rows += simulated({32: 1.0}, metric="looks_ahead", **columns)
                write_rows(folder / f"{task}{entry}{seed}.parquet", rows)
    return folder


def test_entries_that_ran_every_family_stand_on_the_overall_board(folder):
    (board,) = Results(folder).overall("tvd")
    assert (board.families, board.left_out, board.baseline) == (("alpha", "beta"), 1, PRE)
    assert [row.entry for row in board.rows] == [GOOD, PRE]
    assert [sentence.split()[:2] for sentence in board.unsound] == [["alpha:", LOST], ["beta:", LOST]]
    good, pre = board.rows
    assert good.seeds == (5, 5) and good.score.value == pytest.approx(0.256, abs=0.01)
    assert good.score.low <= good.score.value <= good.score.high
    assert good.improvement.value == good.improvement.high == 1 and good.improvement.low < 0.8
    assert good.mean.value == pytest.approx(np.mean(good.families), abs=1e-4)
    assert good.mean.low <= good.mean.value <= good.mean.high
    assert pre.improvement is None and pre.profile[board.limits.index(0.5)] < 0.5 < pre.profile[board.limits.index(0.55)]


def test_the_order_without_each_family_is_that_of_boards_without_it(tmp_path):
    """Of three families the first entry leads one by far, and the second two by a little."""
    levels = {"alpha": (0.0, 0.3), "beta": (0.2, 0.15), "gamma": (0.2, 0.15)}
    for family, means in levels.items():
        for entry, level in zip((PRE, GOOD), means, strict=True):
            for seed in range(3):
                columns = {"task": family, "entry": entry, "seed": seed}
                rows = simulated({8: 0.01, 16: level, 32: level}, **columns)
                rows += simulated({8: 0.4, 16: 0.4, 32: 0.4}, weights="chance", **columns)
                write_rows(tmp_path / f"{family}{entry}{seed}.parquet", rows)
    (board,) = Results(tmp_path).overall("tvd")
    for place, family in enumerate(board.families):
        own = {row.entry: np.mean([s for i, s in enumerate(row.families) if i != place]) for row in board.rows}
        assert [row.ranks_without[place] for row in sorted(board.rows, key=lambda row: own[row.entry])] == [1, 2], family
    assert len({row.ranks_without for row in board.rows}) == 2
    assert "Without alpha the order is" in lgbench("leaderboard", "--results", tmp_path)


def test_a_task_of_a_pack_leaves_the_board_of_the_families_of_lgbench_as_it_is(tmp_path):
    def written(family, *entries):
        for entry, level in entries:
            for seed in range(3):
                columns = {"task": family, "entry": entry, "seed": seed}
                rows = simulated({8: 0.01, 16: level, 32: level + seed / 100}, **columns)
                rows += simulated({8: 0.4, 16: 0.4, 32: 0.4}, weights="chance", **columns)
                write_rows(tmp_path / f"{family}{entry}{seed}.parquet", rows)

    written("max-retrieval", (PRE, 0.2), (GOOD, 0.1))
    written("set-complement", (PRE, 0.2), (GOOD, 0.1))
    before = Results(tmp_path).overall("tvd")
    written("parity-check", (GOOD, 0.3))
    assert [row.entry for row in before[0].rows] == [GOOD, PRE] and Results(tmp_path).overall("tvd") == before


def test_the_families_of_lgbench_are_those_of_its_plugin():
    assert tuple(sorted({task.family for task in lgbench_tasks.lgbench_tasks()})) == FAMILIES


def test_scores_are_shares_of_context_free(folder):
    results = Results(folder)
    (board,), families = results.overall("tvd"), results.boards("tvd")
    for row in board.rows:
        for score, family in zip(row.families, families, strict=True):
            mean = next(other.cell("OOD").mean for other in family.rows if other.entry == row.entry)
            assert score == pytest.approx(mean / 0.4, abs=2e-4)


def test_another_baseline_has_its_own_probabilities(folder):
    (board,) = Results(folder).overall("tvd", baseline="good")
    good, pre = board.rows
    assert good.improvement is None and pre.improvement.value == 0


def test_who_is_left_out_is_said(folder):
    shown = lgbench("leaderboard", "--results", folder)
    assert "1 entry is left out for want of runs on all of alpha, beta." in shown
    assert f"{LOST} is not ranked" in shown


def test_without_a_context_free_level_or_with_one_family_there_is_no_overall_board(tmp_path):
    for family in ("alpha", "beta"):
        rows = simulated({8: 0.1, 16: 0.2}, task=family, family=family)
        rows += simulated({8: 0.4, 16: 0.4}, task=family, family=family, weights="chance") if family == "alpha" else []
        write_rows(tmp_path / f"{family}.parquet", rows)
    assert Results(tmp_path).overall("tvd") == []
    (tmp_path / "beta.parquet").unlink()
    assert Results(tmp_path).overall("tvd") == []
