"""The three metrics, as pure functions of a model's probabilities and p*. No metric knows a task."""

from __future__ import annotations

import torch
from torch import Tensor

WORST = {"tvd": 1.0, "accuracy": 0.0, "roc_auc": 0.5}
"""What a model scores that gives no finite answer: nothing of the right answer survives."""


def total_variation(probability: Tensor, distribution: Tensor) -> Tensor:
    """Total variation distance 1/2 sum_v |p(v) - p*(v)|: (..., V), (..., V) -> (...)."""
    return (probability - distribution).abs().sum(-1) / 2


def support_found(probability: Tensor, distribution: Tensor) -> Tensor:
    """Whether every legal token (p* > 0) is more probable than every illegal one: (..., V), (..., V) -> (...) bool.

    With one legal token this is top-1 accuracy; a tie between a legal and an illegal token counts as wrong.
    """
    legal = distribution > 0
    lowest_legal = probability.masked_fill(~legal, torch.inf).amin(-1)
    highest_illegal = probability.masked_fill(legal, -torch.inf).amax(-1)
    return lowest_legal > highest_illegal


def roc_auc(score: Tensor, positive: Tensor) -> Tensor:
    """Probability that a positive outscores a negative, ties counting half: (..., N), (..., N) bool -> (...) float64.

    NaN where there is no positive or no negative. Mann-Whitney U from midranks, so O(N log N) a row.
    """
    score = score.contiguous()
    ordered = score.sort(-1).values
    below = torch.searchsorted(ordered, score)
    not_above = torch.searchsorted(ordered, score, right=True)
    midrank = (below + not_above + 1).double() / 2
    positives = positive.sum(-1).double()
    negatives = positive.shape[-1] - positives
    u = (midrank * positive).sum(-1) - positives * (positives + 1) / 2
    return u / (positives * negatives)
