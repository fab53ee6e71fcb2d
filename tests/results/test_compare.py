from __future__ import annotations

import random
import re
from dataclasses import asdict

import numpy as np
import pytest
from helpers.commands import invoked
from helpers.run_files import simulated, write_rows
from scipy import stats
from statsmodels.stats.multitest import multipletests

import lgbench_measurements
from lgbench import UsageError
from lgbench.reports.analyses import comparison_table
from lgbench.reports.boards import board_table
from lgbench.reports.tables import markdown
from lgbench.results.compare import compare
from lgbench.results.entries import find_entry
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import Metric

LENGTHS = (4, 8, 16, 32, 64)
TRAINED = 8


def values(entry, seed, task):
    """A model's scores by length: all alike on `beta`; on `alpha` better with `+good` at all lengths from 16 on."""
    noise = random.Random(f"{entry} {seed} {task}")
    shared = random.Random(f"{seed} {task}")  # the same seed has the same contexts
    gain = 0.05 if "good" in entry and task == "alpha" else 0.0
    return {n: 0.1 * shared.random() + 0.01 * noise.random() + (0.4 - gain) * (n > TRAINED) for n in LENGTHS}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    for task in ("alpha", "beta"):
        for entry in ("transformer+good", "transformer+plain"):
            for seed in range(6 if "good" in entry else 5):
                rows = simulated(values(entry, seed, task), TRAINED, entry=entry, task=task, seed=seed)
                averaged = {n: v + 0.001 * n for n, v in values(entry, seed, task).items()}
                rows += simulated(averaged, TRAINED, entry=entry, task=task, seed=seed, weights="ema")
                write_rows(folder / f"{task}.{entry}.{seed}.parquet", rows)
    write_rows(folder / "alone.parquet", simulated({8: 0.1, 16: 0.2}, TRAINED, entry="other+lone", task="gamma"))
    return Results(folder)


def by_length(entry, task, length):
    return np.array([values(entry, seed, task)[length] for seed in range(5)])


def test_differences_are_those_of_the_common_seeds(results):
    alpha, beta = compare(results, "good", "plain", "tvd")
    assert (alpha.name, beta.name) == ("alpha", "beta")
    for comparison in (alpha, beta):
        assert [d.length for d in comparison.lengths] == list(LENGTHS)
        for d in comparison.lengths:
            first, second = (by_length(f"transformer+{norm}", comparison.name, d.length) for norm in ("good", "plain"))
            assert (d.first, d.second) == pytest.approx((first.mean(), second.mean()), abs=5.1e-5)
            assert d.difference == pytest.approx((first - second).mean(), abs=5.1e-5)
            assert d.n == 5 and d.low <= d.difference <= d.high


def test_p_and_interval_are_those_of_scipys_paired_t_test_with_p_corrected_for_the_lengths(results):
    (alpha,) = compare(results, "good", "plain", "tvd", "alpha")
    p = []
    for d in alpha.lengths:
        found = stats.ttest_rel(*(by_length(f"transformer+{norm}", "alpha", d.length) for norm in ("good", "plain")))
        p.append(found.pvalue)
        assert (d.low, d.high) == pytest.approx(found.confidence_interval(0.95), abs=5.1e-5)
    expected = multipletests(p, method="holm")[1]
    assert [d.p for d in alpha.lengths] == pytest.approx(expected.tolist(), rel=0.01)


def test_a_verdict_that_one_failing_seed_makes_is_called_that(tmp_path):
    """The failing seed of the better entry hides the difference."""
    for seed in range(5):
        for entry, gain in (("a+x", 0.1), ("a+y", 0.0)):
            fails = entry == "a+x" and seed == 3
            tested = 0.8 if fails else 0.3 - gain + 0.001 * seed * (1 + gain)
            write_rows(
                tmp_path / f"{entry}{seed}.parquet", simulated({8: 0.5 if fails else 0.01, 16: tested}, entry=entry, seed=seed)
            )
    (found,) = compare(Results(tmp_path), "a+x", "a+y", "tvd")
    assert found.mean.decided_by == (3,) and not found.mean.significant
    assert "One failing seed makes this verdict: without seed 3, not fitted, the difference is significant." in found.verdict
    (board,) = Results(tmp_path).boards("tvd", baseline="a+y")
    row = next(row for row in board.rows if row.entry == "a+x")
    assert row.against.decided_by == (3,) and (row.fitted.seeds, row.fitted.n) == (4, 5)
    assert (row.fitted.low, row.fitted.high) == pytest.approx(stats.binomtest(4, 5).proportion_ci(0.95, "exact"), abs=5.1e-5)
    (table,) = map(markdown, [board_table(board)])
    assert "undecided by failing seed 3" in table and "| 0.80 [0.28, 0.99] |" in table


def test_the_verdict_is_corrected_for_the_boards_it_is_given_on(results):
    (alone,) = compare(results, "good", "plain", "tvd", "alpha")
    both, beta = compare(results, "good", "plain", "tvd")
    assert both.mean.p == pytest.approx(2 * alone.mean.p, rel=0.01)
    assert both.mean.p < 0.05 < beta.mean.p


def test_a_verdict_names_the_better_whichever_comes_first(results):
    for first, second in (("good", "plain"), ("plain", "good")):
        (alpha,) = compare(results, first, second, "tvd", "alpha")
        said = "transformer+good is significantly better than transformer+plain on alpha OOD under quick/1"
        assert alpha.verdict.startswith(said)
        better, worse = sorted((alpha.mean.first, alpha.mean.second))  # a lower TVD is better
        less = f"{first} less {second} is {alpha.mean.difference:+.4f} ["
        assert f": TVD {better:.4f} against {worse:.4f}; {less}" in alpha.verdict
        assert re.search(r"significant at 3 of 5 lengths: 16, 32, 64\.$", alpha.verdict)
        assert [d.length for d in alpha.lengths if d.significant] == [16, 32, 64]


def test_a_difference_that_is_not_significant_is_called_so(results):
    (beta,) = compare(results, "good", "plain", "tvd", "beta")
    said, at_lengths = re.split(r"(?<=\)\.) ", beta.verdict)
    assert (
        beta.planned.difference == 0.02
        and f"{beta.planned.seeds} seeds find a difference of 0.02 in 80 % of cases" in at_lengths
    )
    assert "transformer+good" in said and "transformer+plain" in said and "on beta OOD under quick/1 is not significant" in said
    assert "not significant at any of 5 lengths" in at_lengths and "significantly better" not in beta.verdict
    assert not beta.mean.significant and not any(d.significant for d in beta.lengths)


def test_higher_is_better_for_accuracy(tmp_path):
    for seed in range(4):
        for entry, gain in (("a+high", 0.3), ("a+low", 0.0)):
            kept = {8: 0.5, 16: 0.4 + gain + 0.01 * seed * (1 + gain)}
            write_rows(tmp_path / f"{entry}{seed}.parquet", simulated(kept, entry=entry, seed=seed, metric="accuracy"))
    (found,) = compare(Results(tmp_path), "a+low", "a+high", "accuracy")
    assert found.verdict.startswith("a+high is significantly better than a+low") and found.mean.difference < 0


def test_the_better_of_two_entries_with_equal_rounded_means_is_that_of_the_difference(tmp_path):
    for seed in range(4):
        for entry, value in (("a+x", 0.0018404), ("a+y", 0.0018396)):
            tested = value + 1e-8 * seed * (value > 0.00184)
            write_rows(tmp_path / f"{entry}{seed}.parquet", simulated({8: 0.01, 16: tested}, entry=entry, seed=seed))
    (found,) = compare(Results(tmp_path), "a+x", "a+y", "tvd")
    assert found.mean.first == found.mean.second and found.mean.difference > 0
    assert found.verdict.startswith("a+y is significantly better than a+x")


def test_averagers_compare_with_the_raw_weights_of_the_same_runs(results):
    (found,) = compare(results, "plain", "plain@ema", "tvd", "alpha")
    assert (found.first, found.second) == ("transformer+plain", "transformer+plain@ema")
    assert found.verdict.startswith("transformer+plain is significantly better than transformer+plain@ema")
    assert found.lengths[-1].difference == pytest.approx(-0.064, abs=5.1e-5)


def test_with_too_few_common_seeds_no_difference_is_significant(tmp_path):
    for seed in range(2):
        for entry, value in (("a+x", 0.1), ("a+y", 0.9)):
            write_rows(tmp_path / f"{entry}{seed}.parquet", simulated({8: value, 16: value}, entry=entry, seed=seed))
    (found,) = compare(Results(tmp_path), "a+x", "a+y", "tvd")
    assert "not significant: they have 2 seeds in common, and a test needs 3" in found.verdict
    assert found.mean.p == 1 and not found.mean.significant
    assert {row[-1] for row in comparison_table(found).rows} == {"-"}


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("goood", "plain", "did you mean"),
        ("good", "transformer+good", "cannot be compared with itself"),
        ("good", "other+lone", "no seed in common"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_reason(results, first, second, said):
    with pytest.raises(UsageError, match=said):
        compare(results, first, second, "tvd")


def test_the_command_prints_a_verdict_and_every_length(results):
    done = invoked("compare", "good", "plain@ema", "--task", "alpha", "--results", results.folder)
    assert done.exit_code == 0, done.output
    (found,) = compare(results, "good", "plain@ema", "tvd", "alpha")
    lines = [re.split(r" {2,}", line.strip()) for line in done.output.splitlines()]
    assert lines[0] == [found.verdict]
    for d in found.lengths:
        assert [str(d.length), f"{d.first:.4f}", f"{d.second:.4f}", f"{d.difference:+.4f}"] in [line[:4] for line in lines]
    assert lines[-1] == ["p is corrected (Holm) for the 5 lengths, in the row OOD for all boards; intervals are not."]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("peri-norm", "transformer+peri-norm"),
        ("rope", "transformer+pre-norm+rope"),
        ("rope@ema", "transformer+pre-norm+rope@ema"),
        ("rope+pre-norm", "transformer+pre-norm+rope"),
        ("ssmax", "transformer+pre-norm+ssmax"),
        ("set-attention+ssmax", "set-attention+ssmax"),
        ("set-attention", "set-attention"),
        ("lstm", "lstm"),
        ("my-norm", "transformer+my-norm~0123abcd"),
    ],
)
def test_an_entry_may_be_named_by_some_of_its_parts(name, found):
    known = [
        "lstm",
        "set-attention",
        "set-attention+ssmax",
        "transformer+my-norm~0123abcd",
        "transformer+peri-norm",
        "transformer+pre-norm+rope",
        "transformer+pre-norm+rope@ema",
        "transformer+pre-norm+ssmax",
    ]
    assert find_entry(name, known) == found


def test_parts_that_several_entries_have_are_refused_with_all_of_them():
    with pytest.raises(UsageError, match=r"'rope' may be any of transformer\+peri-norm\+rope, transformer\+pre-norm\+rope"):
        find_entry("rope", ["transformer+pre-norm+rope", "transformer+peri-norm+rope"])
    with pytest.raises(UsageError, match=re.escape("name more of its parts, or one of these in quotes")):
        find_entry("lru", ["lru (mine 0.1 source 1a)", "lru (mine 0.1 source 2b)"])


def test_the_interval_of_a_difference_is_no_wider_than_the_range_of_the_metric(tmp_path):
    bounded = asdict(Metric.of(lgbench_measurements.TotalVariation()))
    for seed, value in enumerate((0.0, 1.0, 0.0)):
        for entry, own in (("a+x", value), ("a+y", 1 - value)):
            rows = [row for name in ("tvd", "kl") for row in simulated({8: own, 16: own}, entry=entry, seed=seed, metric=name)]
            both = [bounded, bounded | {"name": "kl", "high": None, "threshold": None}]
            write_rows(tmp_path / f"{entry}{seed}.parquet", rows, measurements=both)
    (tvd,), (kl,) = (compare(Results(tmp_path), "a+x", "a+y", metric) for metric in ("tvd", "kl"))
    assert (tvd.mean.low, tvd.mean.high) == (-1, 1)
    assert kl.mean.low < -3 and kl.mean.high > 2 and kl.mean.difference == tvd.mean.difference


def test_two_versions_of_a_metric_are_compared_apart(tmp_path):
    first = asdict(Metric.of(lgbench_measurements.TotalVariation()))
    for version in (1, 2):
        for seed in range(3):
            for entry, mean in (("a+x", 0.2), ("a+y", 0.2 + version / 10)):
                value = mean + 0.01 * seed * version
                rows = simulated({8: value, 16: value}, entry=entry, seed=seed, metric_version=version)
                path = tmp_path / f"{entry}{seed}.{version}.parquet"
                write_rows(path, rows, measurements=[first | {"version": version}])
    found = {c.metric.version: c.mean for c in compare(Results(tmp_path), "a+x", "a+y", "tvd")}
    assert {version: mean.difference for version, mean in found.items()} == {1: -0.1, 2: -0.2}
