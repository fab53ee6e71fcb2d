from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lgbench import Predictions, StringScores
from lgbench_measurements import RocAuc
from lgbench_measurements.functions import illegal_mass, illegal_top, roc_auc, support_found, total_variation

levels = st.integers(0, 4)  # few levels, so ties are common


def distributions(classes: int):
    weights = st.lists(st.integers(0, 6), min_size=classes, max_size=classes).filter(any)
    return weights.map(lambda w: [x / sum(w) for x in w])


pairs = st.integers(2, 7).flatmap(lambda v: st.tuples(distributions(v), distributions(v)))
scored = st.lists(st.tuples(levels, st.booleans()), min_size=2, max_size=20)


def auc_by_counting_pairs(scores, positive) -> float:
    wins = [
        1.0 if p > n else 0.5 if p == n else 0.0
        for p in (s for s, is_positive in zip(scores, positive, strict=True) if is_positive)
        for n in (s for s, is_positive in zip(scores, positive, strict=True) if not is_positive)
    ]
    return sum(wins) / len(wins) if wins else math.nan


@given(pairs)
def test_total_variation_is_the_largest_difference_between_probabilities_of_an_event(pair):
    p, q = np.array(pair)
    events = np.arange(2 ** len(p))[:, None] >> np.arange(len(p)) & 1
    largest = abs(events @ p - events @ q).max()
    assert total_variation(torch.tensor(p), torch.tensor(q)).item() == pytest.approx(largest, abs=1e-12)


@given(pairs)
def test_support_is_found_where_sorting_puts_the_legal_tokens_strictly_first(pair):
    probability, distribution = pair
    legal = {v for v, p in enumerate(distribution) if p > 0}
    order = sorted(range(len(probability)), key=lambda v: (-probability[v], v in legal))  # in a tie the illegal comes first
    expected = set(order[: len(legal)]) == legal
    assert support_found(torch.tensor(probability), torch.tensor(distribution)).item() is expected


@given(scored)
def test_roc_auc_counts_pairs_won_and_half_of_the_ties(sample):
    scores, positive = zip(*sample, strict=True)
    found = roc_auc(torch.tensor(scores, dtype=torch.float64), torch.tensor(positive)).item()
    assert found == pytest.approx(auc_by_counting_pairs(scores, positive), nan_ok=True)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("transposed", [False, True])
def test_roc_auc_of_a_batch_is_that_of_each_row(shape, transposed):
    generator = np.random.default_rng(0)
    scores, positive = generator.integers(0, 4, shape), generator.random(shape) < 0.5
    expected = np.array(
        [auc_by_counting_pairs(s, p) for s, p in zip(scores.reshape(-1, 7), positive.reshape(-1, 7), strict=True)]
    )
    score, is_positive = torch.tensor(scores, dtype=torch.float64), torch.tensor(positive)
    if transposed:  # the same numbers in another memory layout
        score = score.transpose(0, -1).contiguous().transpose(0, -1)
    found = roc_auc(score, is_positive)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected.reshape(shape[:-1]))


def test_probabilities_are_the_softmax_of_the_logits_in_double_precision():
    logits = torch.tensor([[[1.0, 2.0, 50.0], [0.0, math.log(3), -math.inf]]])
    probability = Predictions(logits, logits).probability
    weights = [[math.exp(x - 50) for x in (1, 2, 50)], [1.0, 3.0, 0.0]]
    expected = [[w / sum(row) for w in row] for row in weights]
    assert probability.dtype == torch.float64
    np.testing.assert_allclose(probability[0].numpy(), expected, rtol=1e-7)


@given(pairs)
def test_illegal_tokens_are_those_that_a_loop_counts(pair):
    probability, distribution = pair
    illegal = [p for p, right in zip(probability, distribution, strict=True) if right == 0]
    legal = [p for p, right in zip(probability, distribution, strict=True) if right > 0]
    given_pair = [torch.tensor(x, dtype=torch.float64) for x in pair]
    assert illegal_mass(*given_pair).item() == pytest.approx(sum(illegal))
    assert illegal_top(*given_pair).item() == (max(illegal, default=-1) > max(legal))


def test_strings_are_ranked_by_their_least_probable_step_to_four_digits():
    steps = [[-1.0, -3.0], [-2.0, -2.0], [-2.00004, -0.5], [-4.0, -0.1]]
    is_member = [True, True, False, False]
    scores = StringScores(torch.tensor(steps, dtype=torch.float64), torch.tensor(is_member))
    least = [round(min(row), 4) for row in steps]
    assert least[1] == least[2]
    assert RocAuc().of_strings(scores).item() == pytest.approx(auc_by_counting_pairs(least, is_member))
