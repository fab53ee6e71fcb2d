"""Tiers and rank intervals against brute force, SciPy and statsmodels, and boards of entries that are all equal."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from lgbench.results.statistics import Moments, layers, moderated_t, spread, standings
from lgbench.results.statistics.significance import significantly_better, without_circles

NAN = float("nan")


@st.composite
def orders(draw):
    """Relations without a circle: who is better comes first in some order of the entries."""
    entries = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    better = np.triu(rng.random((entries, entries)) < draw(st.sampled_from([0.1, 0.3, 0.6, 1.0])), 1)
    order = rng.permutation(entries)
    return better[np.ix_(order, order)]


def longest_path(better, entry):
    """How many entries stand in the longest row of entries, each better than the next, that ends here."""
    return 1 + max((longest_path(better, other) for other in np.flatnonzero(better[:, entry])), default=0)


@settings(max_examples=40, deadline=None)
@given(orders())
def test_the_tier_of_an_entry_is_the_longest_row_of_better_ones_that_ends_with_it(better):
    assert layers(better) == [longest_path(better, entry) for entry in range(len(better))]


@settings(max_examples=40, deadline=None)
@given(orders())
def test_entries_of_a_tier_are_never_significantly_different(better):
    tiers = layers(better)
    for i, j in combinations(range(len(better)), 2):
        assert tiers[i] != tiers[j] or not (better[i, j] or better[j, i])


@settings(max_examples=40, deadline=None)
@given(orders(), st.data())
def test_a_newcomer_that_is_not_significantly_different_from_anybody_is_first_and_changes_nobodys_tier(better, data):
    place = data.draw(st.integers(0, len(better)))
    wider = np.insert(np.insert(better, place, False, 0), place, False, 1)
    found = layers(wider)
    assert found.pop(place) == 1
    assert found == layers(better)


@settings(max_examples=40, deadline=None)
@given(orders(), st.integers(0, 2**32 - 1))
def test_entries_of_a_circle_are_not_different_from_each_other_and_all_else_stays(better, key):
    """Around the first entries a circle is closed; those outside it keep what they are to each entry of it."""
    size = min(3, len(better))
    circle = np.zeros_like(better)
    circle[:size, :size] = np.roll(np.eye(size, dtype=bool), 1, 1) if size == 3 else False
    crossed = better & ~better.T | circle
    found = without_circles(crossed)
    assert (found <= crossed).all()
    layers(found)  # fails where a circle is left
    reach = np.linalg.matrix_power(np.eye(len(better)) + crossed, len(better)) > 0
    for i, j in zip(*np.nonzero(crossed), strict=True):
        assert found[i, j] == (not reach[j, i])


def test_seeds_that_contradict_each_other_make_no_order():
    """Each pair shares five seeds, and each is worse than the one before on them."""
    values = np.full((3, 15), NAN)
    noise = 0.01 * np.random.default_rng(0).normal(size=(3, 15))
    for i, j, own in ((0, 1, slice(0, 5)), (1, 2, slice(5, 10)), (2, 0, slice(10, 15))):
        values[i, own], values[j, own] = 0.1, 0.5
    assert significantly_better(values + noise).sum() == 3
    assert standings(values + noise) == [(1, 1, 3, ())] * 3


def by_mean(values):
    return values[np.nanmean(values, -1).argsort(kind="stable")]


@st.composite
def tables(draw, missing=0.0):
    """Entries in order of their means, some alike and some far apart, over seeds that are harder or easier for all."""
    entries, seeds = draw(st.integers(1, 6)), draw(st.integers(3, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    apart = draw(st.sampled_from([0, 1, 3, 10])) * rng.integers(0, 4, (entries, 1))
    values = apart + rng.normal(size=seeds) + rng.normal(size=(entries, seeds))
    values[:, 2:][rng.random((entries, seeds - 2)) < missing] = NAN
    return by_mean(values)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(tables(missing=0.2))
def test_entries_are_significantly_better_where_the_moderated_test_and_holm_of_statsmodels_say_so(values):
    known, pairs = spread(values), list(combinations(range(len(values)), 2))
    moments = [Moments.of(values[i] - values[j]) for i, j in pairs]
    p = [float(moderated_t(own, known).p) for own in moments]
    real = multipletests(p, method="holm")[0] if p else []
    expected = {
        (i, j) if own.mean < 0 else (j, i) for (i, j), own, different in zip(pairs, moments, real, strict=True) if different
    }
    assert {(int(i), int(j)) for i, j in zip(*np.nonzero(significantly_better(values)), strict=True)} == expected


@settings(max_examples=40, deadline=None)
@given(tables(missing=0.2))
def test_tiers_and_rank_intervals_follow_from_the_significant_pairs(values):
    found = standings(values)
    better = np.array([[j in standing.better_than for j in range(len(values))] for standing in found])
    assert [standing.tier for standing in found] == layers(better)
    for i, standing in enumerate(found):
        assert standing.best_rank == 1 + sum(i in other.better_than for other in found)
        assert standing.worst_rank == len(values) - len(standing.better_than)


@settings(max_examples=40, deadline=None)
@given(tables())
def test_with_the_same_seeds_for_all_nobody_is_better_than_an_entry_with_a_lower_mean(values):
    for i, standing in enumerate(standings(values)):
        assert all(j > i for j in standing.better_than)


@settings(max_examples=40, deadline=None)
@given(tables(missing=0.2), st.randoms(use_true_random=False))
def test_standings_do_not_depend_on_the_order_of_seeds(values, random):
    order = random.sample(range(values.shape[1]), values.shape[1])
    assert standings(values[:, order]) == standings(values)


@settings(max_examples=40, deadline=None)
@given(tables(missing=0.2), st.data())
def test_copies_share_a_tier(values, data):
    original = data.draw(st.integers(0, len(values) - 1))
    found = standings(np.insert(values, original, values[original], axis=0))
    assert found[original].tier == found[original + 1].tier
    assert original + 1 not in found[original].better_than and original not in found[original + 1].better_than


def test_entries_that_are_clearly_different_have_a_tier_and_a_rank_each():
    rng = np.random.default_rng(0)
    values = np.arange(5)[:, None] + rng.normal(size=5) + 0.01 * rng.normal(size=(5, 5))
    found = standings(values)
    assert [(s.tier, s.best_rank, s.worst_rank) for s in found] == [(n, n, n) for n in range(1, 6)]
    assert found[0].better_than == (1, 2, 3, 4) and found[4].better_than == ()


def test_the_last_of_a_chain_of_entries_that_overlap_has_a_tier_of_its_own():
    noise = 0.1 * np.random.default_rng(3).normal(size=(3, 5))
    found = standings(np.array([[0.0], [0.15], [0.4]]) + noise - noise.mean(-1, keepdims=True))
    assert [(s.tier, s.best_rank, s.worst_rank, s.better_than) for s in found] == [
        (1, 1, 2, (2,)),
        (1, 1, 3, ()),
        (2, 2, 3, ()),
    ]


def test_one_entry_whose_seeds_scatter_holds_nobody_together():
    rng = np.random.default_rng(0)
    values = np.array([[0.0], [1.0], [2.0]]) + 0.01 * rng.normal(size=(3, 10))
    wild = 1 + 30 * rng.normal(size=(1, 10))
    tiers = [standing.tier for standing in standings(np.vstack([values, wild]))]
    assert tiers == [1, 2, 3, 1]


def test_the_seeds_that_both_entries_have_decide_which_is_better():
    harder = np.array([0.0, 0.1, 0.2, 0.6, 0.7])
    lucky = harder + [0.05, 0.06, 0.05, NAN, NAN]  # has the easy seeds alone, and is worse on them
    assert np.nanmean(lucky) < harder.mean()
    assert standings(np.array([lucky, harder])) == [(2, 2, 2, ()), (1, 1, 1, (0,))]


def test_nobody_and_one_alone_have_standings():
    assert standings(np.empty((0, 3))) == []
    assert standings(np.ones((1, 3))) == [(1, 1, 1, ())]
