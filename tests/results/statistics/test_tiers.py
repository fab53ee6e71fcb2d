"""Tiers and rank intervals against brute force, SciPy, and simulated boards whose best entry is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from lgbench.results.statistics import SURE, standings

NAN = float("nan")


def by_mean(values):
    return values[np.nanmean(values, -1).argsort(kind="stable")]


def standing_all(values):
    """Standings where every entry may be in the first tier."""
    return standings(values, np.full(len(values), True))


@st.composite
def tables(draw, missing=0.0, most=6):
    """Entries in the order of their means, some alike and some far apart, over seeds that are harder or easier for all."""
    entries, seeds = draw(st.integers(1, most)), draw(st.integers(3, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    apart = draw(st.sampled_from([0, 1, 3, 10])) * rng.integers(0, 4, (entries, 1))
    spreads = rng.choice([0.1, 1.0, 3.0], (entries, 1))
    values = apart + rng.normal(size=seeds) + spreads * rng.normal(size=(entries, seeds))
    values[:, 2:][rng.random((entries, seeds - 2)) < missing] = NAN
    return by_mean(values)


@settings(max_examples=40, deadline=None)
@given(tables(missing=0.2))
def test_an_entry_is_better_where_the_paired_test_of_scipy_is_sure_and_its_mean_is_better(values):
    expected = {i: set() for i in range(len(values))}
    for i, j in combinations(range(len(values)), 2):
        pair = values[[i, j]][:, np.isfinite(values[[i, j]]).all(0)]
        if pair.shape[1] >= 3 and scipy.stats.ttest_rel(*pair).pvalue < SURE and pair[0].mean() < pair[1].mean():
            expected[i].add(j)
    assert {i: set(own.better_than) for i, own in enumerate(standing_all(values))} == expected


@settings(max_examples=40, deadline=None)
@given(tables(missing=0.2))
def test_rank_intervals_count_better_and_worse_entries(values):
    found = standing_all(values)
    for i, standing in enumerate(found):
        assert standing.best_rank == 1 + sum(i in other.better_than for other in found)
        assert standing.worst_rank == len(values) - len(standing.better_than)


@settings(max_examples=60, deadline=None)
@given(tables(missing=0.2))
def test_tiers_follow_the_order_of_means_and_separate_entries_that_differ(values):
    found = standing_all(values)
    tiers = [standing.tier for standing in found]
    assert tiers == sorted(tiers)
    for i, standing in enumerate(found):
        assert all(tiers[j] > tiers[i] for j in standing.better_than)
        assert tiers[i] == 1 or any(tiers[j] == tiers[i] - 1 for j in range(i))


@settings(max_examples=100, deadline=None)
@given(tables(missing=0.1, most=7), st.data())
def test_adding_an_entry_never_promotes_another(values, data):
    eligible = np.array([data.draw(st.booleans()) for _ in values], dtype=bool)
    for added in range(len(values)):
        left = np.arange(len(values)) != added
        before = [standing.tier for standing in standings(values[left], eligible[left])]
        after = [standing.tier for i, standing in enumerate(standings(values, eligible)) if i != added]
        assert all(now >= then for now, then in zip(after, before, strict=True))


@settings(max_examples=40, deadline=None)
@given(tables(), st.data())
def test_an_entry_that_is_not_eligible_is_never_in_the_first_tier_and_pushes_nobody_out(values, data):
    eligible = np.array([data.draw(st.booleans()) for _ in values], dtype=bool)
    found = standings(values, eligible)
    for own, fit, plain in zip(found, eligible, standing_all(values), strict=True):
        assert fit or own.tier > 1
        assert not fit or (own.tier == 1) == (plain.tier == 1)


def test_scattered_seeds_alone_put_no_entry_into_the_first_tier():
    rng = np.random.default_rng(0)
    values = np.array([[0.0], [1.0]]) + 0.01 * rng.normal(size=(2, 5))
    wild = 2 + 5 * np.array([[-1.0, -0.5, 0.0, 0.5, 1.0]])
    found = standing_all(np.vstack([values, wild]))
    assert [standing.tier for standing in found] == [1, 2, 2]
    assert found[2].best_rank == 1  # nothing is known against it


def test_with_few_seeds_in_common_the_order_of_all_means_stands():
    """The second is better on the seeds of both, and worse on the average."""
    harder = np.array([0.0, 0.1, 0.2, 0.6, 0.7])
    lucky = harder + [0.05, 0.05, 0.05, NAN, NAN]  # has the easy seeds alone
    assert np.nanmean(lucky) < harder.mean()
    assert [(s.tier, s.better_than) for s in standing_all(np.array([lucky, harder]))] == [(1, ()), (1, ())]


@settings(max_examples=40, deadline=None)
@given(tables(missing=0.2), st.randoms(use_true_random=False))
def test_standings_do_not_depend_on_the_order_of_seeds(values, random):
    order = random.sample(range(values.shape[1]), values.shape[1])
    assert standing_all(values[:, order]) == standing_all(values)


def test_nobody_and_one_alone_have_standings():
    assert standing_all(np.empty((0, 3))) == []
    assert standing_all(np.ones((1, 3))) == [(1, 1, 1, ())]


@pytest.mark.parametrize("entries", [3, 12, 50])
@pytest.mark.parametrize("world", ["equal", "one best", "best scatters"])
def test_the_true_best_entry_may_be_the_best_in_nineteen_of_twenty_boards(entries, world):
    """Hsu's property: best rank 1 for the entry with the least true mean, whatever the spreads."""
    rng = np.random.default_rng(entries)
    means = np.zeros(entries) if world == "equal" else np.where(np.arange(entries) == 0, 0.0, 0.5)
    spreads = np.where(np.arange(entries) == 0, 5.0 if world == "best scatters" else 1.0, 1.0)
    kept = 0
    for _ in range(200):
        values = means[:, None] + spreads[:, None] * rng.normal(size=(entries, 5)) + rng.normal(size=5)
        order = values.mean(-1).argsort()
        own = standing_all(values[order])[int(np.flatnonzero(order == 0)[0])]
        kept += own.best_rank == 1
    assert kept >= 186  # 190 of 200 are expected at least, less chance
