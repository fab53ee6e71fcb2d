from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from lgbench.metrics import roc_auc, support_found, total_variation

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
    p, q = (torch.tensor(x, dtype=torch.float64) for x in pair)
    events = [[v for v in range(len(p)) if mask >> v & 1] for mask in range(2 ** len(p))]
    largest = max(abs(p[event].sum() - q[event].sum()) for event in events)
    assert total_variation(p, q).item() == pytest.approx(largest.item(), abs=1e-12)


def test_total_variation_of_disjoint_distributions_is_one_and_of_equal_ones_zero():
    p, q = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), torch.tensor([[0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
    assert total_variation(p, q).tolist() == [1.0, 0.0]


@given(pairs)
def test_support_is_found_where_sorting_puts_the_legal_tokens_strictly_first(pair):
    probability, distribution = pair
    legal = {v for v, p in enumerate(distribution) if p > 0}
    order = sorted(range(len(probability)), key=lambda v: (-probability[v], v in legal))  # in a tie the illegal comes first
    expected = set(order[: len(legal)]) == legal
    assert support_found(torch.tensor(probability), torch.tensor(distribution)).item() is expected


@given(st.integers(2, 6).flatmap(lambda v: st.tuples(st.permutations(range(v)), st.integers(0, v - 1))))
def test_with_one_legal_token_support_found_is_top_1_accuracy(drawn):
    ranks, legal = drawn
    probability = torch.tensor(ranks, dtype=torch.float64).softmax(-1)
    assert support_found(probability, torch.eye(len(ranks))[legal]).item() is (int(np.argmax(ranks)) == legal)


def test_a_tie_between_legal_and_illegal_is_wrong_and_all_legal_is_right():
    uniform = torch.full((3,), 1 / 3)
    assert not support_found(uniform, torch.tensor([1.0, 0.0, 0.0]))
    assert support_found(uniform, torch.tensor([0.2, 0.2, 0.6]))


@given(scored)
def test_roc_auc_counts_pairs_won_and_half_of_the_ties(sample):
    scores, positive = zip(*sample, strict=True)
    found = roc_auc(torch.tensor(scores, dtype=torch.float64), torch.tensor(positive)).item()
    assert found == pytest.approx(auc_by_counting_pairs(scores, positive), nan_ok=True)


@given(scored.filter(lambda sample: len({positive for _, positive in sample}) == 2))
def test_roc_auc_agrees_with_scikit_learn(sample):
    scores, positive = zip(*sample, strict=True)
    found = roc_auc(torch.tensor(scores, dtype=torch.float64), torch.tensor(positive)).item()
    assert found == pytest.approx(roc_auc_score(positive, scores))


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


@pytest.mark.parametrize("positive", [[True, True], [False, False]])
def test_roc_auc_is_nan_without_both_kinds(positive):
    assert math.isnan(roc_auc(torch.tensor([0.1, 0.9]), torch.tensor(positive)).item())
