"""The moderated t-test against limma's own numbers, SciPy, statsmodels, and simulated variances whose prior is known."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import polygamma
from statsmodels.stats.multitest import multipletests

from lgbench.results.statistics import Moments, Spread, holm, moderated_t, spread
from lgbench.results.statistics.significance import ALONE, fitted, trigamma_inverse

NAN = float("nan")
RNG = np.random.default_rng


def unequal(table, seeds=8):
    """Differences of 30 pairs, a fifth of the seeds missing."""
    rng = RNG(table)
    differences = rng.normal(size=(30, seeds))
    differences[rng.random(differences.shape) < 0.2] = NAN
    return differences


@pytest.mark.parametrize("table", range(5))
def test_where_nothing_is_borrowed_pairs_are_tested_as_scipy_tests_them_on_the_seeds_that_both_have(table):
    differences = unequal(table)
    found = moderated_t(Moments.of(differences), ALONE)
    for values, p, low, high in zip(differences, *found, strict=True):
        common = values[np.isfinite(values)]
        if len(common) < 3:
            assert p == 1 and np.isnan([low, high]).all()
            continue
        expected = scipy.stats.ttest_1samp(common, 0)
        assert p == pytest.approx(expected.pvalue, rel=1e-9)
        assert (low, high) == pytest.approx(expected.confidence_interval(0.95), rel=1e-9)


@pytest.mark.parametrize("differences", [[], [NAN] * 3, [0.5], [0.5, 0.5], [0.5, NAN, 0.4]])
@pytest.mark.parametrize("known", [ALONE, Spread(0.1, 3.0, 9.0), Spread(0.1, np.inf, 9.0)])
def test_with_fewer_than_three_common_seeds_p_is_one(differences, known):
    found = moderated_t(Moments.of(np.array(differences, dtype=float)), known)
    assert found.p == 1 and np.isnan([found.low, found.high]).all()


def test_p_is_one_for_differences_of_zero_and_zero_for_equal_differences():
    def p(values, known=ALONE):
        return moderated_t(Moments.of(np.array(values)), known).p

    assert p(np.zeros(5)) == p([0.0, NAN, 0.0, 0.0]) == p(np.zeros(5), Spread(0.1, 2.0, 9.0)) == 1
    for seeds in (3, 4, 5, 10):
        assert p(np.full(seeds, 0.25)) == 0 and p(np.full(seeds, -0.25)) == 0
        assert 0 < p(np.full(seeds, 0.25), Spread(0.1, 2.0, 9.0)) < 1


def test_variances_are_squeezed_as_limma_squeezes_them():
    """squeezeVar(c(0.5, 1.3, 7.8), df = 3) of limma for R: numbers in the tests of inmoose, which ports limma to Python."""
    own = np.array([0.5, 1.3, 7.8])
    variance, weight = fitted(own, np.full(3, 3.0))
    assert (variance, weight) == pytest.approx((1.676927, 2.830777), abs=1e-6)
    moments = Moments(np.full(3, 4), np.zeros(3), own)
    squeezed, free = Spread(variance, weight, 100.0).borrowed(moments)
    np.testing.assert_allclose(squeezed, [1.071385, 1.482994, 4.827317], atol=1e-6)
    np.testing.assert_allclose(free, 3 + weight)


def test_variances_that_differ_as_chance_has_it_are_all_their_mean():
    own = np.array([1.0, 1.1, 0.9, 1.05])
    assert fitted(own, np.full(4, 4.0)) == (own.mean(), np.inf)
    squeezed, free = Spread(own.mean(), np.inf, 12.0).borrowed(Moments(np.full(4, 5), np.zeros(4), own))
    assert (squeezed == own.mean()).all() and (free == 12).all()


@pytest.mark.parametrize("own", [[], [1.0], [1.0, 2.0], [0.0, 0.0, 0.0, 1.0]])
def test_nothing_is_borrowed_from_fewer_than_three_variances_or_where_half_of_them_are_zero(own):
    assert fitted(np.array(own), np.full(len(own), 4.0))[1] == 0


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-9, 1e9))
def test_trigamma_is_inverted(value):
    assert polygamma(1, trigamma_inverse(value)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(("weight", "variance"), [(2.0, 1.0), (6.0, 0.01), (30.0, 4.0)])
def test_the_prior_of_simulated_variances_is_found_whatever_their_degrees_of_freedom(weight, variance):
    rng = RNG(1)
    freedom = rng.integers(2, 10, 40_000).astype(float)
    true = variance * weight / rng.chisquare(weight, len(freedom))
    own = true * rng.chisquare(freedom) / freedom
    assert fitted(own, freedom) == pytest.approx((variance, weight), rel=0.1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 1.0, 8.0, np.inf]))
def test_an_interval_leaves_out_zero_exactly_where_p_is_below_one_in_twenty(table, weight):
    moments = Moments.of(unequal(table) + 0.8)
    found = moderated_t(moments, Spread(1.0, weight, 50.0))
    known = moments.seeds >= 3
    assert ((found.p < 0.05) == ((found.low > 0) | (found.high < 0)))[known].all()


def test_with_one_variance_for_all_the_test_is_that_of_the_two_way_analysis_of_variance():
    """Entries and seeds: the mean square of what they leave, over (entries - 1)(seeds - 1) degrees of freedom."""
    tables = (RNG(key).normal(size=(8, 6)) for key in range(100))
    values = next(own for own in tables if spread(own).weight == np.inf) + RNG(0).normal(size=6)
    known = spread(values)
    assert known.freedom == 7 * 5
    left = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    square = (left**2).sum() / known.freedom
    pairs = Moments.of(values[[0, 0, 1]] - values[[1, 2, 2]])
    expected = 2 * scipy.stats.t.sf(np.abs(pairs.mean) / np.sqrt(2 * square / 6), known.freedom)
    assert known.weight == np.inf and known.variance == pytest.approx(2 * square)
    np.testing.assert_allclose(moderated_t(pairs, known).p, expected)


def test_no_test_has_more_degrees_of_freedom_than_the_board():
    values = RNG(0).normal(size=(3, 5))
    values[0, 3:] = NAN
    known = spread(values)
    assert known.freedom == 13 - 3 - 5 + 1
    assert (Spread(1.0, np.inf, known.freedom).borrowed(Moments.of(values[:2] - values[1:]))[1] <= known.freedom).all()


def test_two_entries_borrow_nothing():
    values = RNG(0).normal(size=(2, 5))
    assert spread(values) is ALONE


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05, 1.0])), min_size=1, max_size=30))
def test_holm_corrects_as_statsmodels_does(p):
    with patch("gc.collect"):  # which statsmodels calls every time, and which is slow where much is loaded
        expected = multipletests(p, method="holm")[1]
    np.testing.assert_allclose(holm(np.array(p)), expected, rtol=1e-12)


def test_holm_of_one_is_itself_and_of_none_is_none():
    assert holm(np.array([0.03])).tolist() == [0.03]
    assert holm(np.empty(0)).shape == (0,)
