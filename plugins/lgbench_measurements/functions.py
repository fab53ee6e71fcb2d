"""The metrics, as pure functions of a model's probabilities and p*. No metric knows a task."""

from __future__ import annotations

import torch
from torch import Tensor


def total_variation(probability: Tensor, distribution: Tensor) -> Tensor:
    """Total variation distance 1/2 sum_v |p(v) - p*(v)|: (..., V), (..., V) -> (...)."""
    return (probability - distribution).abs().sum(-1) / 2


def best_blind_prediction(distribution: Tensor) -> Tensor:
    """The one distribution (V,) whose mean total variation distance from n distributions (n, V) is least.

    It minimizes sum_v mean |q_v - p_v| over q that sum to 1. By Lagrange's rule each q_v is the same quantile of its p_v.
    Between two neighbouring order statistics all q of the right sum are equally good.
    """
    ordered = distribution.sort(0).values
    sums = ordered.sum(-1)  # of the same order statistic of all tokens, from at most 1 to at least 1
    above = int(torch.searchsorted(sums, torch.ones((), dtype=sums.dtype), right=True).clamp(1, len(sums) - 1))
    low, high = ordered[above - 1], ordered[above]
    gap = sums[above] - sums[above - 1]
    share = ((1 - sums[above - 1]) / gap).clamp(0, 1) if gap > 0 else torch.zeros(())
    return low + share * (high - low)


def support_found(probability: Tensor, distribution: Tensor) -> Tensor:
    """Whether every legal token (p* > 0) is more probable than every illegal one: (..., V), (..., V) -> (...) bool.

    With one legal token this is top-1 accuracy; a tie between a legal and an illegal token counts as wrong.
    """
    legal = distribution > 0
    lowest_legal = probability.masked_fill(~legal, torch.inf).amin(-1)
    highest_illegal = probability.masked_fill(legal, -torch.inf).amax(-1)
    return lowest_legal > highest_illegal


def illegal_mass(probability: Tensor, distribution: Tensor) -> Tensor:
    """Probability of the illegal tokens (p* = 0): (..., V), (..., V) -> (...)."""
    return probability.masked_fill(distribution > 0, 0).sum(-1)


def illegal_top(probability: Tensor, distribution: Tensor) -> Tensor:
    """Whether an illegal token is more probable than every legal one: (..., V), (..., V) -> (...) bool. Ties are legal."""
    legal = distribution > 0
    highest_legal = probability.masked_fill(~legal, -torch.inf).amax(-1)
    return probability.masked_fill(legal, -torch.inf).amax(-1) > highest_legal


def exact_match(probability: Tensor, distribution: Tensor, counts: Tensor) -> Tensor:
    """Whether all counted answers are right: (n, A, V), (n, A, V), (n, A) bool -> (n,) bool. A tie counts as wrong.

    An answer is right if its most probable token is a most probable token of p*, which for a fixed answer is that answer.
    """
    best = distribution == distribution.amax(-1, keepdim=True)
    highest_other = probability.masked_fill(best, -torch.inf).amax(-1)
    right = probability.masked_fill(~best, -torch.inf).amax(-1) > highest_other
    return (right | ~counts).all(-1)


def roc_auc(score: Tensor, positive: Tensor) -> Tensor:
    """Probability that a positive outscores a negative, ties counting half: (..., N), (..., N) bool -> (...) float64.

    A score of NaN ties with every other. NaN comes back where there is no positive or no negative. Mann-Whitney U from
    midranks, so O(N log N) a row.
    """
    known = ~score.isnan()
    score = score.masked_fill(~known, torch.inf).contiguous()  # above all others, so it moves no other's rank
    ordered = score.sort(-1).values
    below = torch.searchsorted(ordered, score)
    not_above = torch.searchsorted(ordered, score, right=True)
    midrank = (below + not_above + 1).double() / 2
    positives, negatives = ((side & known).sum(-1).double() for side in (positive, ~positive))
    wins = (midrank * (positive & known)).sum(-1) - positives * (positives + 1) / 2
    pairs = positive.sum(-1).double() * (~positive).sum(-1)
    return (wins + (pairs - positives * negatives) / 2) / pairs
