"""Verdicts on runs in which the truth is known, against SciPy and statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.claim_files import CLAIM, NOISE, QUICK, VERSION, around, write_claim, write_runs
from helpers.run_files import simulated, write_rows
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

import lgbench_measurements
from lgbench.claims.claim import read_claims
from lgbench.claims.missing import RunCommand, Wanted, command, orders
from lgbench.claims.verdicts import decide
from lgbench.reports.claims import reasons, summary
from lgbench.results.leaderboard import Results
from lgbench.results.metrics import descriptions

OTHER = (0.004, 0.001, -0.003, 0.0, 0.002, -0.001, 0.003, -0.002, 0.001, -0.005)


def claim_of(folder, text=CLAIM):
    (claim,) = read_claims(write_claim(folder / "claims", text).parent)
    return claim


def judged(tmp_path, entries, text=CLAIM, **columns):
    """The verdicts under the protocol that was run."""
    results = Results(write_runs(tmp_path / "results", entries, **columns))
    return [verdict for verdict in decide(claim_of(tmp_path, text), results) if verdict.n]


def old(mean=0.5, seeds=5):
    return [{8: 0.05, 16: mean + noise, 32: mean + noise} for noise in OTHER[:seeds]]


def differences(new, other, length=16):
    return np.array([a[length] - b[length] for a, b in zip(new, other, strict=True)])


@pytest.mark.parametrize(
    ("mean", "margin", "state"),
    [
        (0.3, 0.0, "confirmed"),
        (0.3, 0.1, "confirmed"),
        (0.3, 0.3, "refuted"),
        (0.3, 0.2, "undecided"),
        (0.5, 0.0, "undecided"),
        (0.7, 0.0, "refuted"),
        (0.7, 0.1, "refuted"),
    ],
)
def test_a_claim_of_a_better_entry_is_decided_by_where_the_interval_lies(tmp_path, mean, margin, state):
    new = around(mean)
    (verdict,) = judged(tmp_path, {"arch+new": new, "arch+old": old()}, f"{CLAIM}margin = {margin}")
    assert verdict.state == state and verdict.n == 5
    assert verdict.difference == pytest.approx(differences(new, old()).mean(), abs=5.1e-5)
    assert verdict.low < verdict.difference < verdict.high
    expected = stats.ttest_1samp(differences(new, old()), -margin)
    assert verdict.p == pytest.approx(expected.pvalue, rel=0.01)
    low, high = stats.ttest_1samp(differences(new, old()), 0).confidence_interval()
    assert (verdict.low, verdict.high) == pytest.approx((low, high), abs=5.1e-5)


@pytest.mark.parametrize("fits", [True, False])
def test_a_verdict_that_one_failing_seed_makes_says_so(tmp_path, fits):
    """Seed 3 alone hides that the new norm is better: a seed that fits is a result, one that fails is an exception."""
    new = around(0.3)
    new[3] = {8: 0.05 if fits else 0.5, 16: 0.9, 32: 0.9}
    (verdict,) = judged(tmp_path, {"arch+new": new, "arch+old": old()})
    without = np.delete(differences(new, old()), 3)
    assert verdict.state == "undecided" and stats.ttest_1samp(without, 0).pvalue < 0.05
    assert ("one failing seed makes this verdict: without seed 3 it is another" in verdict.reason) is not fits
    assert verdict.fitted == (5 if fits else 4)


def test_a_confirmation_is_decided_by_its_own_seeds_alone(tmp_path):
    """Seeds 0 to 4 show the reverse of what 5 to 9 show, and all ten show nothing."""
    new, former = around(0.7) + around(0.3), old(seeds=10)
    text = CLAIM.replace("seeds = 5", 'seeds = "5:10"')
    (verdict,) = judged(tmp_path / "ten", {"arch+new": new, "arch+old": former}, text)
    assert (verdict.state, verdict.n, verdict.wanted) == ("confirmed", 5, ())
    assert verdict.difference == pytest.approx(differences(new[5:], former[5:]).mean(), abs=5.1e-5)
    seven = Results(write_runs(tmp_path / "seven", {"arch+new": new[:7], "arch+old": former[:7]}))
    (verdict,) = decide(claim_of(tmp_path, text), seven)
    assert (verdict.state, verdict.n) == ("undecided", 2)
    assert {each.seeds for each in verdict.wanted} == {(7, 8, 9)}
    four = Results(write_runs(tmp_path / "four", {"arch+new": new[:4], "arch+old": former[:4]}))
    (verdict,) = decide(claim_of(tmp_path, text), four)
    assert (verdict.state, verdict.reason) == ("not run", "no seed of the claim has both entries")
    alone = text.replace('against = "arch+old"', "value = 0.5")
    (verdict,) = decide(claim_of(tmp_path, alone), four)
    assert (verdict.state, verdict.reason) == ("not run", "no seed of the claim has a run of arch+new")


@pytest.mark.parametrize("mean", [0.3, 0.495, 0.7])
def test_the_reverse_claim_has_the_reverse_verdict(tmp_path, mean):
    entries = {"arch+new": around(mean), "arch+old": old()}
    (there,) = judged(tmp_path, entries)
    reverse = CLAIM.replace('entry = "arch+new"\nagainst = "arch+old"', 'entry = "arch+old"\nagainst = "arch+new"')
    (back,) = judged(tmp_path, entries, reverse)
    opposite = {"confirmed": "refuted", "refuted": "confirmed", "undecided": "undecided"}
    assert back.state == opposite[there.state] and back.difference == pytest.approx(-there.difference)


@pytest.mark.parametrize(
    ("mean", "margin", "state"),
    [
        (0.5, 0.05, "confirmed"),
        (0.52, 0.05, "confirmed"),
        (0.7, 0.05, "refuted"),
        (0.3, 0.05, "refuted"),
        (0.5, 0.002, "undecided"),
    ],
)
def test_alike_means_that_the_interval_lies_within_the_margin(tmp_path, mean, margin, state):
    new = around(mean)
    (verdict,) = judged(tmp_path, {"arch+new": new, "arch+old": old()}, f'{CLAIM}expect = "alike"\nmargin = {margin}')
    assert verdict.state == state
    one_sided, *_ = ttost_paired(*(np.array([run[16] for run in runs]) for runs in (new, old())), -margin, margin)
    if state == "confirmed":
        assert verdict.p == pytest.approx(2 * one_sided, rel=0.01) and one_sided < 0.025
    if state == "undecided":
        assert one_sided > 0.025


@pytest.mark.parametrize("metric", ["tvd", "accuracy"])
@pytest.mark.parametrize("expect", ["better", "worse", "alike"])
@pytest.mark.parametrize("mean", [0.3, 0.5, 0.52, 0.7])
def test_an_entry_is_compared_with_a_number_as_by_a_one_sample_test(tmp_path, metric, expect, mean):
    margin, new = 0.05, around(mean)
    keys = f'value = 0.5\nexpect = "{expect}"\nmargin = {margin}\nmetric = "{metric}"'
    (verdict,) = judged(tmp_path, {"arch+new": new}, CLAIM.replace('against = "arch+old"', keys), metric=metric)
    means = np.array([(run[16] + run[32]) / 2 for run in new])
    assert verdict.first == pytest.approx(means.mean(), abs=5.1e-5) and verdict.second == 0.5
    low, high = stats.ttest_1samp(means, 0.5).confidence_interval()
    assert (verdict.low, verdict.high) == pytest.approx((low - 0.5, high - 0.5), abs=5.1e-5)
    lower, higher = means.mean() < 0.5, means.mean() > 0.5
    below, above = (stats.ttest_1samp(means, 0.5 + end).pvalue < 0.05 for end in (-margin, margin))
    inside = below and above and abs(means.mean() - 0.5) < margin
    as_claimed = {"better": lower if metric == "tvd" else higher, "worse": higher if metric == "tvd" else lower}
    if expect == "alike":
        expected = "confirmed" if inside else "refuted"
    else:
        beyond = abs(means.mean() - 0.5) > margin and as_claimed[expect]
        expected = "confirmed" if beyond else "refuted"
    assert verdict.state == expected


def test_every_seed_with_the_same_score_decides(tmp_path):
    """Exact match is 0 or 1 on every seed where a model fails or solves a task altogether."""
    text = CLAIM.replace('against = "arch+old"', 'value = 0.9\nmetric = "accuracy"')
    for score, state in ((1.0, "confirmed"), (0.0, "refuted")):
        runs = [{8: 1.0, 16: score, 32: score}] * 5
        (verdict,) = judged(tmp_path / state, {"arch+new": runs}, text, metric="accuracy")
        assert (verdict.state, verdict.p, verdict.difference) == (state, 0, pytest.approx(score - 0.9))


def test_a_seed_that_fails_to_fit_says_so_if_it_alone_makes_a_model_fall_short_of_a_number(tmp_path):
    new = around(0.3)
    new[3] = {8: 0.5, 16: 0.9, 32: 0.9}
    (verdict,) = judged(tmp_path, {"arch+new": new}, CLAIM.replace('against = "arch+old"', "value = 0.35"))
    assert verdict.state == "undecided" and "without seed 3 it is another" in verdict.reason


@pytest.mark.parametrize(("at_12", "fitted"), [(0.06, 3), (0.08, 3), (0.1, 0)])
@pytest.mark.parametrize("expect", ["better", "worse"])
def test_a_value_that_a_model_misses_in_the_upper_half_of_the_training_range_is_not_fitted(tmp_path, at_12, fitted, expect):
    """With a value of 0.07: the mean at lengths 8 and 12 counts, 2 and 4 do not. All of them fit without a value, below 0.1."""
    runs = [{2: 0.0, 4: 0.0, 8: 0.05, 12: at_12, 16: 0.5, 32: 0.5 + noise} for noise in OTHER[:3]]
    text = CLAIM.replace('against = "arch+old"', f'value = 0.07\nexpect = "{expect}"')
    (verdict,) = judged(tmp_path, {"arch+new": runs}, text, trained=12)
    assert verdict.state == ("refuted" if expect == "better" else "confirmed") and verdict.n == 3
    assert verdict.fitted == fitted


def test_a_value_to_be_like_and_a_board_without_training_lengths_leave_the_fit_as_it_is(tmp_path):
    alike = CLAIM.replace('against = "arch+old"', 'value = 0.04\nexpect = "alike"\nmargin = 0.5')
    (verdict,) = judged(tmp_path / "alike", {"arch+new": around(0.3)}, alike)
    assert (verdict.n, verdict.fitted) == (5, 5)  # 0.05 within the training range, and not better than 0.04
    beyond = CLAIM.replace('against = "arch+old"', "value = 0.04")
    (verdict,) = judged(tmp_path / "beyond", {"arch+new": [{32: 0.3 + noise} for noise in OTHER[:5]]}, beyond)
    assert (verdict.n, verdict.fitted, verdict.state) == (5, 5, "refuted")


def test_a_test_with_tasks_of_its_own_is_made_there_alone(tmp_path):
    text = CLAIM + '[[tests]]\nentry = "arch+new"\nvalue = 0.5\ntasks = ["beta"]\n'
    for task in ("alpha", "beta"):
        write_runs(tmp_path / "results", {"arch+new": around(0.3), "arch+old": old()}, task)
    found = decide(claim_of(tmp_path, text), Results(tmp_path / "results"))
    assert [(v.task, v.test.against, v.test.value) for v in found] == [("alpha", "arch+old", None), ("beta", None, 0.5)]
    assert {v.state for v in found} == {"confirmed"}


def test_a_family_is_undecided_until_all_its_tasks_have_runs(tmp_path):
    entries = {"arch+new": around(0.3), "arch+old": old()}
    write_runs(tmp_path / "results", entries, "one", family="alpha")
    write_runs(tmp_path / "results", entries, "two", family="alpha")
    claim, results = claim_of(tmp_path), Results(tmp_path / "results")
    for tasks, state in ((["one", "two"], "confirmed"), (["one", "two", "three"], "undecided")):
        (verdict,) = decide(claim, results, families={"alpha": tasks})
        assert verdict.state == state and verdict.n == 5
    assert verdict.reason == "of 3 tasks of alpha, 1 have no run: three"
    assert {each.seeds for each in verdict.wanted} == {(0, 1, 2, 3, 4)}


@pytest.mark.slow
def test_p_is_corrected_over_the_tasks_and_tests_of_a_claim(tmp_path):
    text = CLAIM.replace('["alpha"]', '["alpha", "beta"]') + '[[tests]]\nentry = "arch+odd"\nagainst = "arch+old"\n'
    for task, mean in (("alpha", 0.49), ("beta", 0.44)):
        entries = {"arch+new": around(mean), "arch+odd": around(mean + 0.05, sign=-1), "arch+old": old()}
        write_runs(tmp_path / "results", entries, task)
    expected = []
    for task in ("alpha", "beta"):
        for entry in ("arch+new", "arch+odd"):
            own = CLAIM.replace("alpha", task).replace("arch+new", entry)
            expected += [v.p for v in decide(claim_of(tmp_path / entry / task, own), Results(tmp_path / "results")) if v.n]
    found = [v for v in decide(claim_of(tmp_path, text), Results(tmp_path / "results")) if v.n]
    assert [(v.task, v.test.entry) for v in found] == [(t, f"arch+{e}") for t in ("alpha", "beta") for e in ("new", "odd")]
    assert [v.p for v in found] == pytest.approx(multipletests(expected, method="holm")[1].tolist(), rel=0.01)


@pytest.mark.parametrize(
    ("lengths", "expected"), [('"ID"', 0.0), ('"OOD"', -0.2), ("[16]", -0.1), ("[16, 32]", -0.2), ('"all"', -0.4 / 3)]
)
def test_the_difference_is_of_the_means_over_the_lengths_that_are_named(tmp_path, lengths, expected):
    new = [{8: 0.05, 16: 0.4 + noise, 32: 0.2 + noise} for noise in NOISE[:5]]
    plain = [{8: 0.05, 16: 0.5 + noise, 32: 0.5 + noise} for noise in NOISE[:5]]
    (verdict,) = judged(tmp_path, {"arch+new": new, "arch+old": plain}, f"{CLAIM}lengths = {lengths}")
    assert verdict.difference == pytest.approx(expected, abs=5.1e-5)


EXPONENT = CLAIM.replace('against = "arch+old"', 'exponent = -1.0\nmargin = 0.1\nlengths = "all"\nmetric = "kl"')


def test_a_length_that_the_board_lacks_is_an_obstacle_and_no_missing_run(tmp_path):
    results = Results(write_runs(tmp_path / "results", {"arch+new": around(0.3), "arch+old": old(seeds=3)}))
    (verdict,) = decide(claim_of(tmp_path, f"{CLAIM}lengths = [7, 16]"), results)
    assert (verdict.state, verdict.wanted) == ("not run", ())
    assert verdict.reason == "the board has no length 7; it has 8, 16, 32"


def write_law(folder, law, seeds=5):
    kl = descriptions([lgbench_measurements.TotalVariation()])[0] | {"name": "kl", "high": None, "threshold": None}
    for seed in range(seeds):
        values = {n: law(n, seed) for n in (2, 4, 8, 16, 32)}
        rows = simulated(values, entry="arch+new", seed=seed, metric="kl", protocol_version=VERSION)
        write_rows(folder / f"{seed}.parquet", rows, measurements=[kl])
    return Results(folder)


@pytest.mark.parametrize(
    ("law", "state"),
    [
        (lambda n, seed: (3 + seed) / n * (1 + NOISE[seed] / math.log(n)), "confirmed"),
        (lambda n, seed: (3 + seed) / math.sqrt(n) * (1 + NOISE[seed] / math.log(n)), "refuted"),
        (lambda n, seed: n ** (-1.05 + 10 * NOISE[seed]), "undecided"),
    ],
)
def test_a_power_law_is_fitted_to_each_seed(tmp_path, law, state):
    (verdict,) = decide(claim_of(tmp_path, EXPONENT), write_law(tmp_path, law))
    slopes = [np.polyfit(np.log([2, 4, 8, 16, 32]), np.log([law(n, s) for n in (2, 4, 8, 16, 32)]), 1)[0] for s in range(5)]
    assert verdict.state == state and verdict.n == 5 and verdict.second == -1
    assert verdict.first == pytest.approx(np.mean(slopes), abs=5.1e-5)
    assert verdict.difference == pytest.approx(np.mean(slopes) + 1, abs=5.1e-5)


@pytest.mark.parametrize(
    ("expect", "mean", "spread", "baseline", "blind", "state"),
    [
        ("better", 0.3, 1, 0.4, True, "confirmed"),
        ("better", 0.3, 1, 0.6, False, "confirmed"),
        ("better", 0.6, 1, 0.4, False, "refuted"),
        ("better", 0.49, 9, 0.4, True, "undecided"),
        ("worse", 0.6, 1, 0.4, True, "confirmed"),  # only a model worse than a guess is
        ("worse", 0.6, 1, 0.6, False, "confirmed"),
    ],
)
def test_a_value_that_ignoring_the_context_reaches_is_said_and_counted(tmp_path, expect, mean, spread, baseline, blind, state):
    claim = claim_of(tmp_path, CLAIM.replace('against = "arch+old"', f'value = 0.5\nexpect = "{expect}"'))
    found = beside_baseline(tmp_path, {"arch+new": around(mean, spread=spread)}, baseline, claim)
    assert [(each.state, each.blind) for each in found] == [(state, blind)]
    assert ("the context-free baseline is good enough" in found[0].reason) is blind
    assert any("the context-free baseline is good enough" in sentence for sentence in reasons(found)) is blind
    assert ("1 met by ignoring the context" in summary([(claim, found)])) is blind


def beside_baseline(folder, entries, baseline, claim):
    """Verdicts with seeds on runs beside a context-free baseline of one value at all OOD lengths."""
    levels = {8: 0.9, 16: baseline, 32: baseline}
    for entry, runs in entries.items():
        for seed, values in enumerate(runs):
            own = (("raw", values), ("chance", levels))
            rows = [simulated(v, entry=entry, seed=seed, weights=w, protocol_version=VERSION) for w, v in own]
            write_rows(folder / f"{entry}-{seed}.parquet", [row for part in rows for row in part])
    return [verdict for verdict in decide(claim, Results(folder)) if verdict.n]


@pytest.mark.parametrize(
    ("expect", "new", "other", "baseline", "blind"),
    [
        ("better", 0.08, 0.3, 0.07, True),
        ("better", 0.05, 0.3, 0.07, False),  # better than the guess
        ("better", 0.3, 0.5, 0.2, False),  # the guess is better, and wrong
        ("alike", 0.08, 0.08, 0.07, False),
    ],
)
def test_a_comparison_on_a_task_that_the_length_solves_as_well_is_met_by_ignoring_the_context(
    tmp_path, expect, new, other, baseline, blind
):
    claim = claim_of(tmp_path, f'{CLAIM}expect = "{expect}"\n' + "margin = 0.1\n" * (expect == "alike"))
    found = beside_baseline(tmp_path, {"arch+new": around(new), "arch+old": around(other, sign=-1)}, baseline, claim)
    assert [(each.state, each.fitted, each.blind) for each in found] == [("confirmed", 5, blind)]
    assert ("1 met by ignoring the context" in summary([(claim, found)])) is blind


@pytest.mark.parametrize(("new", "other", "fitted"), [(0.95, 0.95, 4), (0.95, 0.4, 0), (0.4, 0.95, 0)])
def test_a_comparison_of_models_that_are_wrong_where_they_trained_is_not_fitted(tmp_path, new, other, fitted):
    """At 12, the only length of the upper half, by the metric of the test and its threshold, 0.9."""
    runs = [[{6: 1.0, 12: at_12, 16: end + noise} for noise in OTHER[:4]] for at_12, end in ((new, 0.3), (other, 0.1))]
    text = CLAIM + 'metric = "accuracy"\n'
    (verdict,) = judged(tmp_path, {"arch+new": runs[0], "arch+old": runs[1]}, text, trained=12, metric="accuracy")
    assert (verdict.state, verdict.n, verdict.fitted) == ("confirmed", 4, fitted)


def test_a_value_of_zero_has_no_exponent(tmp_path):
    (verdict,) = decide(claim_of(tmp_path, EXPONENT), write_law(tmp_path, lambda n, seed: 0.0 if seed else 1 / n))
    assert verdict.n == 1 and verdict.state == "undecided"
    assert verdict.reason == "kl of arch+new is not above 0 at lengths 2, 4, 8, 16, 32, so no power law fits it"


@pytest.mark.parametrize("unfitted", [1, 5], ids=["one seed", "all seeds"])
def test_seeds_without_a_power_law_are_not_left_out_and_were_run(tmp_path, unfitted):
    """Four seeds would confirm the claim."""
    results = write_law(tmp_path, lambda n, seed: -1.0 if seed < unfitted and n == 8 else 1 / n)
    (verdict,) = decide(claim_of(tmp_path, EXPONENT), results)
    assert verdict.state == "undecided" and verdict.n == 5 - unfitted and verdict.wanted == ()
    assert verdict.reason == "kl of arch+new is not above 0 at length 8, so no power law fits it"


def test_a_verdict_stands_under_every_protocol_that_was_run(tmp_path):
    folder = tmp_path / "results"
    write_runs(folder, {"arch+new": around(0.7), "arch+old": old()})
    write_runs(folder, {"arch+new": around(0.3), "arch+old": old()}, protocol="long", protocol_version=1)
    write_runs(folder, {"arch+new": around(0.5), "arch+old": old()}, protocol="other", changes=[("train.lr", "0.1")])
    claim, results = claim_of(tmp_path), Results(folder)
    found = {str(verdict.protocol): verdict.state for verdict in decide(claim, results)}
    assert found == {QUICK: "refuted", "long/1": "confirmed", f"other/{VERSION} train.lr=0.1": "undecided"}
    assert [str(v.protocol) for v in decide(claim, results, "long")] == ["long/1"]
    assert [str(v.protocol) for v in decide(claim, results, list(found)[2])] == [list(found)[2]]
    assert decide(claim, results, "other") == []


def test_runs_of_an_earlier_version_of_a_protocol_are_not_those_that_the_claim_asks_for(tmp_path):
    results = Results(
        write_runs(tmp_path / "results", {"arch+new": around(0.3), "arch+old": old()}, protocol_version=VERSION - 1)
    )
    found = decide(claim_of(tmp_path), results)
    assert [(str(v.protocol), v.state) for v in found] == [(QUICK, "not run"), (f"quick/{VERSION - 1}", "confirmed")]


def test_an_entry_is_found_by_its_whole_name_alone(tmp_path):
    results = Results(write_runs(tmp_path / "results", {"arch+new+rope": around(0.3), "arch+old": old()}))
    (verdict,) = decide(claim_of(tmp_path), results)
    assert verdict.state == "not run" and verdict.wanted == (Wanted("alpha", "arch+new", (0, 1, 2, 3, 4)),)


def test_averages_are_compared_with_the_raw_weights_and_run_with_them(tmp_path):
    text = CLAIM.replace('entry = "arch+new"', 'entry = "arch+old@ema"')
    (verdict,) = judged(tmp_path, {"arch+old@ema": around(0.3), "arch+old": old()}, text)
    assert verdict.state == "confirmed"
    (nothing,) = decide(claim_of(tmp_path, text), None)
    assert nothing.wanted == (Wanted("alpha", "arch+old", (0, 1, 2, 3, 4)),)


def test_an_entry_that_is_not_causal_decides_nothing(tmp_path):
    write_runs(tmp_path / "results", {"arch+new": around(0.1), "arch+old": old()})
    rows = simulated({32: 0.5}, entry="arch+new", seed=2, metric="looks_ahead", protocol_version=VERSION)
    write_rows(tmp_path / "results" / "not-causal.parquet", rows)
    (verdict,) = decide(claim_of(tmp_path), Results(tmp_path / "results"))
    assert verdict.state == "undecided" and "arch+new is not ranked" in verdict.reason


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_decide_nothing(tmp_path, seeds):
    (verdict,) = judged(tmp_path, {"arch+new": around(0.1, seeds), "arch+old": old(0.9, seeds)})
    assert (verdict.state, verdict.n, verdict.p, verdict.seeds_needed) == ("undecided", seeds, None, 5)
    assert "a test needs 3 seeds" in verdict.reason


def test_what_nobody_ran_is_not_run_and_has_no_numbers(tmp_path):
    for results in (None, Results(write_runs(tmp_path / "results", {"arch+new": around(0.3)}, "gamma"))):
        (verdict,) = decide(claim_of(tmp_path), results)
        assert (verdict.state, verdict.difference, verdict.n) == ("not run", None, 0)
        assert verdict.reason == "there is no run of it"


def test_an_undecided_test_says_how_many_seeds_would_decide_it(tmp_path):
    new = around(0.497)
    (verdict,) = judged(tmp_path, {"arch+new": new, "arch+old": old()})
    gaps = differences(new, old())
    exact = TTestPower().solve_power(abs(gaps.mean()) / gaps.std(ddof=1), alpha=0.05, power=0.8)
    assert verdict.state == "undecided" and verdict.seeds_needed == math.ceil(exact)
    assert f"about {math.ceil(exact)} would decide it" in verdict.reason


def test_orders_are_few_and_hold_every_run_once_and_no_other(tmp_path):
    text = CLAIM.replace('["alpha"]', '["alpha", "beta", "gamma"]').replace("seeds = 5", 'seeds = 5\naverage = ["ema"]')
    write_runs(tmp_path / "results", {"arch+new": around(0.3, 3), "arch+old": old()}, "alpha")
    write_runs(tmp_path / "results", {"arch+old": old(seeds=2)}, "beta")
    claim = claim_of(tmp_path, text)
    verdicts = decide(claim, Results(tmp_path / "results"))
    found = orders(claim, [each for verdict in verdicts for each in verdict.wanted])
    made = [(t, a, s) for o in found for t in o.tasks for a in o.archs for s in o.seeds]
    has = {("alpha", "arch+new"): 3, ("alpha", "arch+old"): 5, ("beta", "arch+old"): 2}
    lacking = {
        (task, arch, seed)
        for task in ("alpha", "beta", "gamma")
        for arch in ("arch+new", "arch+old")
        for seed in range(has.get((task, arch), 0), 5)
    }
    assert len(made) == len(set(made)) and set(made) == lacking and len(found) == 4
    assert all(order.average == ("ema",) for order in found)


def test_a_command_is_quoted_for_a_shell():
    order = RunCommand(("dyck", "tomita-1"), ("a+b", "lstm"), (0, 1, 2, 7), ("ema",))
    assert command(order, "quick", ["--results", "my results"]) == (
        "lgbench run --task dyck,tomita-1 --arch a+b,lstm --seeds 0:3,7 --protocol quick --average ema --results 'my results'"
    )
