from __future__ import annotations

import math
from collections import Counter
from unittest import mock

import pytest
import torch
import toys
from helpers.plain_training import CPU
from helpers.toy_registries import METRICS, Marked, Weighted, experiment_of, settings

from lgbench import Language, Measurement, StringScores
from lgbench.contracts import SOUNDNESS
from lgbench.measurement import causality
from lgbench.measurement import evaluate as evaluate_module
from lgbench.measurement.evaluate import evaluate, step_log_probability
from lgbench_measurements import RocAuc

TINY = 1e-30


def scores(task, models, low=1, high=4, longest=16, seed=0, measurements=METRICS, contexts=16):
    """The scores of the measurements. Without soundness, which test_causality.py tests."""
    experiment = experiment_of(task, *settings(low, high, longest, contexts, 12), seed, measurements)
    with mock.patch.object(causality, "question", return_value=None):
        found = evaluate(experiment, models, CPU)
    return [score for score in found if score.metric not in SOUNDNESS]


def table(found) -> dict[tuple[str, int], float | None]:
    return {(s.metric, s.length): s.value for s in found}


def walk_oracle(inputs):
    return torch.tensor([[toys.WALK[token].clamp_min(TINY).log().tolist() for token in row] for row in inputs.tolist()])


def largest_oracle(inputs):
    return torch.nn.functional.one_hot(inputs.sum(1).argmax(-1), 3).float().clamp_min(TINY).log()[:, None]


def even_oracle(inputs):
    odd = torch.nn.functional.pad((inputs[:, 1:]).cumsum(-1) % 2, (1, 0))
    return torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, TINY]]).log()[odd]


def uniform(inputs):
    return torch.zeros(len(inputs), inputs.shape[1], 3)


PERFECT = [(toys.Walk(), walk_oracle), (toys.Largest(), largest_oracle), (toys.Even(), even_oracle)]


@pytest.mark.parametrize(("task", "oracle"), PERFECT, ids=lambda x: getattr(x, "name", ""))
def test_a_model_that_answers_p_star_is_perfect_at_every_length(task, oracle):
    found = scores(task, {"raw": oracle})
    assert {s.metric for s in found} == {"tvd", "accuracy", "roc_auc", "illegal_mass", "illegal_top"}
    for score in found:
        if score.value is not None:
            assert score.value == pytest.approx(float(score.metric in ("accuracy", "roc_auc")), abs=1e-6), score


def test_a_uniform_model_on_set_complement_has_the_closed_form(registry):
    task = registry.tasks["set-complement"]
    v = task.signature.classes
    found = table(scores(task, {"raw": lambda x: torch.zeros(*x.shape, v)}, high=8, longest=v - 1))
    assert {length for _, length in found} == set(range(1, max(task.lengths) + 1))
    for s in range(1, max(task.lengths) + 1):
        assert found["tvd", s] == pytest.approx(s / v, abs=1e-6)  # s seen tokens keep 1/v each that they should not have
        assert found["accuracy", s] == 0.0
        assert found["roc_auc", s] == 0.5
        assert found["illegal_mass", s] == pytest.approx(s / v, abs=1e-6)
        assert found["illegal_top", s] == 0.0  # a tie is the better for the model


def test_a_uniform_model_where_one_answer_is_right_has_the_closed_form():
    found = scores(toys.Largest(), {"raw": lambda x: torch.zeros(len(x), 1, 3)})
    expected = {"tvd": 2 / 3, "accuracy": 0.0, "roc_auc": 0.5, "illegal_mass": 2 / 3, "illegal_top": 0.0}
    for score in found:
        assert score.value == pytest.approx(expected[score.metric])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("task", [toys.Walk(), toys.Largest(), toys.Even()], ids=lambda task: task.name)
def test_logits_that_make_no_distribution_score_worst(task, bad):
    def broken(inputs):
        logits = torch.zeros(len(inputs), 1 if isinstance(task, toys.Largest) else inputs.shape[1], 3)
        logits[..., 1] = bad
        return logits

    models = {"raw": broken, "fine": dict((t.name, o) for t, o in PERFECT)[task.name]}
    found = scores(task, models, measurements=(*METRICS, Confidence()))
    worst = {"tvd": 1.0, "accuracy": 0.0, "roc_auc": 0.5, "illegal_mass": 1.0, "illegal_top": 1.0, "confidence": -5.0}
    assert all(s.value in (worst[s.metric], None) for s in found if s.weights == "raw")
    counts = {s.weights: Counter() for s in found}
    for s in found:
        counts[s.weights][s.metric, s.length] = s.n
    assert counts["raw"] == counts["fine"]


def test_one_bad_position_costs_that_position_alone():
    def broken_at_the_end(inputs):
        logits = walk_oracle(inputs)
        logits[:, -1, 0] = math.nan
        return logits

    found = table(scores(toys.Walk(), {"raw": broken_at_the_end}, longest=8))
    assert found["tvd", 8] == 1.0 and found["tvd", 7] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("broken", ["members", "others"])
def test_strings_without_an_answer_are_never_a_help(broken):
    """NaN for all members, or for all others, tells the two apart and must not be rewarded."""

    def model(inputs):
        is_member = inputs[:, 1:].sum(-1) % 2 == 0
        logits = uniform(inputs)
        logits[is_member if broken == "members" else ~is_member] = math.nan
        return logits

    found = scores(toys.Even(), {"raw": model}, low=0)
    assert all(s.value <= 0.5 for s in found if s.metric == "roc_auc")


def causal(inputs):
    """Some causal model that is neither right nor uniform."""
    return torch.stack([torch.cos(inputs.cumsum(-1) * (c + 1.3)) for c in range(3)], -1)


def test_scores_of_all_prefixes_in_one_pass_equal_those_of_each_prefix_alone():
    task, recorded = toys.Walk(), []

    def model(inputs):
        recorded.append(inputs)
        return causal(inputs)

    found = scores(task, {"raw": model}, longest=9)
    contexts = torch.cat(recorded).tolist()
    assert len(contexts) == 16 and {len(c) for c in contexts} == {9}
    for length in range(1, 10):
        by_hand = {"tvd": [], "accuracy": [], "roc_auc": [], "illegal_mass": [], "illegal_top": []}
        for context in contexts:
            prefix = torch.tensor([context[:length]])
            p = causal(prefix)[0, -1].double().softmax(-1).tolist()
            right = toys.WALK[context[length - 1]].tolist()
            by_hand["tvd"].append(sum(abs(a - b) for a, b in zip(p, right, strict=True)) / 2)
            legal = [a for a, b in zip(p, right, strict=True) if b > 0]
            illegal = [a for a, b in zip(p, right, strict=True) if b == 0]
            by_hand["accuracy"].append(float(not illegal or min(legal) > max(illegal)))
            by_hand["illegal_mass"].append(sum(illegal))
            by_hand["illegal_top"].append(float(max(illegal, default=0.0) > max(legal)))
            if illegal:
                wins = [(a > b) + (a == b) / 2 for a in legal for b in illegal]
                by_hand["roc_auc"].append(sum(wins) / len(wins))
        for metric, values in by_hand.items():
            (score,) = [s for s in found if (s.metric, s.length) == (metric, length)]
            assert score.value == pytest.approx(sum(values) / len(values), abs=1e-6)
            assert score.n == len(values)


def test_an_auc_that_is_defined_for_no_context_is_none_with_n_zero():
    class AllLegal(toys.Walk):
        def sample(self, length, random):
            inputs = super().sample(length, random).inputs
            return toys.Batch(inputs, torch.full((*inputs.shape, 3), 1 / 3))

    found = scores(AllLegal(), {"raw": uniform}, longest=4)
    assert {(s.value, s.n) for s in found if s.metric == "roc_auc"} == {(None, 0)}
    assert {(s.value, s.n) for s in found if s.metric == "accuracy"} == {(1.0, 16)}


@pytest.mark.parametrize("task", [toys.Walk(), toys.Largest(), toys.Even()], ids=lambda task: task.name)
def test_all_variants_and_all_entries_are_tested_on_the_same_inputs(task):
    seen: dict[str, list[torch.Tensor]] = {}

    def recorder(name):
        def model(inputs):
            seen.setdefault(name, []).append(inputs)
            return torch.zeros(len(inputs), 1 if isinstance(task, toys.Largest) else inputs.shape[1], 3)

        return model

    scores(task, {"raw": recorder("a"), "ema": recorder("b")})
    scores(task, {"raw": recorder("c")})
    scores(task, {"raw": recorder("other seed")}, seed=1)
    assert len(seen["a"]) == len(seen["b"]) == len(seen["c"]) > 0
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(seen["a"], seen["b"], seen["c"], strict=True))
    assert not torch.equal(seen["a"][0], seen["other seed"][0])


@pytest.mark.parametrize("task", [toys.Walk(), toys.Largest(), toys.Even()], ids=lambda task: task.name)
def test_how_much_a_model_sees_at_once_changes_no_number(task, monkeypatch):
    oracle = dict((t.name, o) for t, o in PERFECT)[task.name]
    whole = scores(task, {"raw": oracle, "flat": lambda x: 0 * oracle(x)})
    monkeypatch.setitem(evaluate_module.AT_ONCE, "cpu", 20)
    assert scores(task, {"raw": oracle, "flat": lambda x: 0 * oracle(x)}) == whole


def test_a_string_is_scored_by_the_log_probability_of_each_of_its_symbols_and_of_its_end():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.nn.functional.pad(torch.randint(2, (6, 5), generator=generator), (1, 0), value=2)
    logits = torch.randn(6, 6, 3, generator=generator)
    taken = step_log_probability(logits, inputs)
    assert taken.shape == (6, 6) and taken.dtype == torch.float64
    for row, answers, found in zip(inputs.tolist(), logits.tolist(), taken.tolist(), strict=True):
        for position, token in enumerate([*row[1:], 2]):
            weights = [math.exp(x) for x in answers[position]]
            assert found[position] == pytest.approx(math.log(weights[token] / sum(weights)), abs=1e-6)


def auc(logits, inputs, is_member):
    return RocAuc().of_strings(StringScores(step_log_probability(logits, inputs), torch.tensor(is_member))).item()


def test_strings_that_differ_by_rounding_alone_are_tied():
    """A model that counts nothing: every order of the same symbols has one score, whatever the order of summation."""
    inputs = torch.tensor([[2, 0, 1, 1], [2, 1, 0, 1], [2, 1, 1, 0]])
    logits = torch.randn(1, 1, 3, generator=torch.Generator().manual_seed(1)).expand(3, 4, 3)
    noise = 3e-7 * torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(2))
    assert len(set(step_log_probability(logits + noise, inputs).amin(-1).tolist())) == 3  # or nothing would be tied
    for is_member in ([True, False, False], [False, True, False], [False, False, True], [True, True, False]):
        assert auc(logits + noise, inputs, is_member) == 0.5


def test_confident_models_are_still_ranked_where_probabilities_underflow():
    inputs = torch.tensor([[2, 0], [2, 1]])
    logits = torch.tensor([[0.0, -2000.0, 0.0], [0.0, 0.0, 0.0]]).expand(2, 2, 3)
    good, bad = step_log_probability(logits, inputs).amin(-1).tolist()
    assert good > bad > -math.inf
    assert auc(logits, inputs, [True, False]) == 1.0 and auc(logits, inputs, [False, True]) == 0.0


def test_a_logit_of_minus_infinity_is_the_probability_zero():
    def perfect(inputs):
        return toys.WALK[inputs].log()

    found = scores(toys.Walk(), {"raw": perfect}, longest=8)
    assert {s.value for s in found if s.metric == "accuracy"} == {1.0}
    assert max(s.value for s in found if s.metric == "tvd") < 1e-7


def constant(inputs):
    """The same logits everywhere."""
    return torch.tensor([1.0, 0.0, -1.0]).expand(len(inputs), inputs.shape[1], 3)


class OfTokens(Weighted):
    """The same, where each answer counts as often as its token says."""

    def sample(self, length, random):
        batch = super().sample(length, random)
        return batch._replace(weights=batch.weights * batch.inputs)


def test_a_score_of_a_task_with_weights_is_the_weighted_mean_of_its_answers():
    seen = []

    def model(inputs):
        seen.append(inputs)
        return constant(inputs)

    found = {s.length: (s.value, s.n) for s in scores(OfTokens(), {"raw": model}, longest=6, contexts=9) if s.metric == "tvd"}
    p = constant(torch.zeros(1, 1))[0, 0].double().softmax(-1)
    (inputs,) = seen
    for length in range(1, 7):
        tokens = inputs[:, length - 1]
        tvd = (toys.WALK[tokens] - p).abs().sum(-1) / 2
        if length % 2:  # its weight is 0
            assert found[length] == (None, 0)
        else:
            assert 0 < tokens.count_nonzero() < 9
            expected = ((tvd * tokens).sum() / tokens.sum()).item()
            assert found[length] == (pytest.approx(expected, abs=1e-6), tokens.count_nonzero())


def test_answers_at_marked_positions_count_for_the_whole_length_by_their_weights():
    seen = {}

    def model(inputs):
        seen[inputs.shape[1]] = inputs
        return constant(inputs)

    found = scores(Marked(), {"raw": model}, low=2, longest=8, contexts=9)
    p = constant(torch.zeros(1, 1))[0, 0].double().softmax(-1)
    assert set(seen) == {s.length for s in found} == {2, 4, 8}
    for score in (s for s in found if s.metric == "tvd"):
        tvd = (toys.WALK[seen[score.length]] - p).abs().sum(-1) / 2
        weights = torch.arange(1.0, score.length + 1) * (torch.arange(score.length) % 2)
        assert score.value == pytest.approx((tvd * weights).sum().item() / (9 * weights.sum().item()), abs=1e-6)
        assert score.n == 9 * score.length // 2


class Confidence(Measurement):
    """How probable the most probable token is; of strings, how many symbols they have."""

    name = "confidence"
    label = title = "confidence"
    lower_is_better = False
    range = (0.0, None)
    worst = -5.0

    def of_contexts(self, predictions):
        return predictions.probability.amax(-1)

    def of_strings(self, scores):
        return torch.tensor(float(scores.log_probability.shape[-1] - 1))


class OfStrings(Confidence):
    name = "of_strings"

    def source(self, task):
        return "strings" if isinstance(task, Language) else None


def test_a_measurement_of_a_plugin_is_computed_from_what_it_names_and_is_left_out_where_it_is_not_defined():
    own = (Confidence(), OfStrings())
    found = scores(toys.Even(), {"raw": uniform}, low=0, measurements=own)
    assert all(s.value == pytest.approx(1 / 3) for s in found if s.metric == "confidence")
    assert {s.length: s.value for s in found if s.metric == "of_strings"} == {n: float(n) for n in (1, 2, 4, 8, 16)}
    assert {s.metric for s in scores(toys.Walk(), {"raw": uniform}, measurements=own)} == {"confidence"}
