"""Seeds that are needed, against statsmodels and against simulated experiments."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.stats.power import TTestPower

from lgbench.results.statistics import MOST_SEEDS, POWER, power, seeds_needed


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 60), st.floats(0.01, 3), st.floats(0.01, 2), st.sampled_from([0.05, 0.01, 0.001]))
def test_power_is_that_of_statsmodels(seeds, difference, deviation, alpha):
    expected = TTestPower().power(difference / deviation, seeds, alpha)
    assume(np.isfinite(expected))  # it knows none of large effects
    assert power(seeds, difference, deviation**2, alpha) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.05, 1.2), st.sampled_from([0.05, 0.01, 0.001]))
def test_as_many_seeds_are_needed_as_statsmodels_says(effect, alpha):
    """It solves for a number with a fraction."""
    found = seeds_needed(effect, 1.0, alpha)
    enough, too_few = (TTestPower().power(effect, seeds, alpha) for seeds in (found, found - 1))
    assume(np.isfinite([enough, too_few]).all())
    assert enough >= POWER - 1e-9
    assert found == 3 or too_few < POWER


def test_one_more_experiment_in_five_finds_nothing():
    rng = np.random.default_rng(0)
    seeds = seeds_needed(0.02, 0.03**2)
    p = scipy.stats.ttest_1samp(0.02 + 0.03 * rng.normal(size=(20_000, seeds)), 0, axis=-1).pvalue
    assert np.mean(p < 0.05) == pytest.approx(power(seeds, 0.02, 0.03**2), abs=0.01)


def test_no_difference_takes_more_seeds_than_are_counted_and_no_spread_takes_the_fewest_that_a_test_has():
    assert seeds_needed(0.0, 1.0) is None and seeds_needed(0.0, 0.0) is None  # of equal entries
    assert seeds_needed(1e-6, 1.0) is None
    assert seeds_needed(0.02, 0.0) == seeds_needed(1e6, 1e-6) == 3
    assert MOST_SEEDS - 1000 < seeds_needed(2.802 / MOST_SEEDS**0.5, 1.0) <= MOST_SEEDS
