"""The paired t-test against SciPy, statsmodels and simulation, and verdicts that one failing seed makes."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from lgbench.results.statistics import deciding_seeds, holm, paired_t

NAN = float("nan")
RNG = np.random.default_rng


def unequal(table, seeds=8):
    """Differences of 30 pairs, a fifth of the seeds missing."""
    rng = RNG(table)
    differences = rng.normal(size=(30, seeds))
    differences[rng.random(differences.shape) < 0.2] = NAN
    return differences


@pytest.mark.parametrize("table", range(5))
def test_pairs_are_tested_as_scipy_tests_them_on_the_seeds_that_both_have(table):
    differences = unequal(table)
    found = paired_t(differences)
    for i, values in enumerate(differences):
        common = values[np.isfinite(values)]
        if len(common) < 3:
            assert found.p[i] == 1 and np.isnan([found.low[i], found.high[i]]).all()
            continue
        expected = scipy.stats.ttest_1samp(common, 0)
        assert found.p[i] == pytest.approx(expected.pvalue, rel=1e-9)
        assert (found.low[i], found.high[i]) == pytest.approx(expected.confidence_interval(0.95), rel=1e-9)
        assert (found.seeds[i], found.mean[i]) == pytest.approx((len(common), common.mean()))
        assert found.variance[i] == pytest.approx(common.var(ddof=1))


@pytest.mark.parametrize("differences", [[], [NAN] * 3, [0.5], [0.5, 0.5], [0.5, NAN, 0.4]])
def test_with_fewer_than_three_common_seeds_p_is_one(differences):
    found = paired_t(np.array(differences, dtype=float))
    assert found.p == 1 and np.isnan([found.low, found.high]).all()


def test_p_is_one_for_differences_of_zero_and_zero_for_equal_differences():
    assert paired_t(np.zeros(5)).p == paired_t(np.array([0.0, NAN, 0.0, 0.0])).p == 1
    for seeds in (3, 4, 5, 10):
        assert paired_t(np.full(seeds, 0.25)).p == 0 and paired_t(np.full(seeds, -0.25)).p == 0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000))
def test_an_interval_leaves_out_zero_exactly_where_p_is_below_one_in_twenty(table):
    found = paired_t(unequal(table) + 0.8)
    known = found.seeds >= 3
    assert ((found.p < 0.05) == ((found.low > 0) | (found.high < 0)))[known].all()


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_of_a_wide_pair_and_of_a_narrow_pair_covers_alike(seeds):
    """Whatever the spreads of other pairs on the board."""
    spreads = np.geomspace(0.001, 0.1, 5)[:, None, None]
    found = paired_t(spreads * RNG(seeds).normal(size=(5, 4000, seeds)))
    covered = ((found.low <= 0) & (found.high >= 0)).mean(-1)
    assert ((covered > 0.935) & (covered < 0.965)).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05, 1.0])), min_size=1, max_size=30))
def test_holm_corrects_as_statsmodels_does(p):
    with patch("gc.collect"):  # which statsmodels calls every time, and which is slow where much is loaded
        expected = multipletests(p, method="holm")[1]
    np.testing.assert_allclose(holm(np.array(p)), expected, rtol=1e-12)


def test_holm_of_one_is_itself_and_of_none_is_none():
    assert holm(np.array([0.03])).tolist() == [0.03]
    assert holm(np.empty(0)).shape == (0,)


SMALL = [0.09, 0.1, 0.11, 0.1]


@pytest.mark.parametrize(
    ("difference", "failing", "deciding"),
    [
        pytest.param([*SMALL, -0.6], [4], (4,), id="it hides a difference"),
        pytest.param([0.3, 0.3, -0.3, -0.3, -0.25, 0.3, -0.3, 0.3, -0.3, 3.0], [9], (), id="a wide difference stays undecided"),
        pytest.param([*SMALL, 0.1], [4], (), id="all seeds agree"),
        pytest.param([*SMALL, -0.6], [3], (), id="a fitted seed hides it"),
        pytest.param([*SMALL, -0.6], [0, 1, 2, 3, 4], (), id="no seed is fitted"),
    ],
)
def test_the_failing_seed_that_makes_a_verdict_is_named(difference, failing, deciding):
    lost = np.isin(np.arange(len(difference)), failing)
    assert deciding_seeds([difference], [lost], [range(len(lost))]) == [deciding]


def test_a_verdict_that_turns_on_every_seed_is_made_by_none():
    """With three seeds nothing is significant without one of them."""
    assert deciding_seeds([SMALL[:3]], [np.array([True, False, False])], [range(3)]) == [()]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_deciding_seeds_are_those_of_tests_without_them(key):
    rng = RNG(key)
    differences = rng.normal(size=(4, 6)) + rng.choice([0, 2], (4, 1))
    failing = rng.random((4, 6)) < 0.3
    differences[failing] += rng.choice([0, 8], failing.sum())

    def verdict(values, i):
        p = [scipy.stats.ttest_1samp(own[np.isfinite(own)], 0).pvalue for own in values]
        with patch("gc.collect"):
            return multipletests(p, method="holm")[0][i] and np.sign(np.nanmean(values[i]))

    for i, deciding in enumerate(deciding_seeds(differences, failing, [range(differences.shape[1])] * len(differences))):
        turning = set()
        for seed in range(6):
            without = differences.copy()
            without[i, seed] = NAN
            if verdict(without, i) != verdict(differences, i):
                turning.add(seed)
        expected = turning if turning <= set(np.flatnonzero(failing[i]).tolist()) and not failing[i].all() else set()
        assert set(deciding) == expected
