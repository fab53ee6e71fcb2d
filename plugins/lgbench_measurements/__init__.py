"""The metrics, total variation distance, accuracy, exact match, ROC AUC and illegal tokens, and the probes, as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from torch import Tensor

from lgbench import Answers, Language, Measurement, Predictions, Source, StringScores, Task, hookimpl
from lgbench_measurements import of_attention, of_stream
from lgbench_measurements.functions import (
    best_blind_prediction,
    exact_match,
    illegal_mass,
    illegal_top,
    roc_auc,
    support_found,
    total_variation,
)

SCORE_DIGITS = 4
"""Digits after the point of a string's score, in nats. About five are significant in a float32 model."""


@final
class TotalVariation(Measurement):
    """Total variation distance 1/2 sum_v |p(v) - p*(v)| between the model's distribution and p*, mean over answers."""

    name = "tvd"
    label = "TVD"
    title = "total variation distance (TVD)"
    lower_is_better = True
    range = (0.0, 1.0)
    worst = 1.0
    threshold = 0.1
    landmark = (0.0, "exact")

    def of_contexts(self, predictions: Predictions) -> Tensor:
        return total_variation(predictions.probability, predictions.distribution)

    def context_free(self, distribution: Tensor, test: Tensor) -> Tensor:
        return total_variation(best_blind_prediction(distribution.double()), test.double())


@final
class Accuracy(Measurement):
    """Share of answers for which every legal token (p* > 0) is more probable than every illegal one."""

    name = label = title = "accuracy"
    lower_is_better = False
    range = (0.0, 1.0)
    worst = 0.0
    threshold = 0.9
    landmark = (1.0, "exact")

    def of_contexts(self, predictions: Predictions) -> Tensor:
        return support_found(predictions.probability, predictions.distribution).double()


@final
class ExactMatch(Measurement):
    """Share of contexts whose whole answer is right: at every marked position the most probable token is that of p*.

    Only where a task answers at marked positions, as in copying. Where it answers once, accuracy is the same number. With a
    fixed answer it equals exact match of greedy decoding: up to the first wrong token, both read the same context.
    """

    name = "exact_match"
    label = title = "exact match"
    lower_is_better = False
    range = (0.0, 1.0)
    worst = 0.0
    threshold = 0.9
    landmark = (1.0, "exact")

    def source(self, task: Task) -> Source | None:
        return "sequences" if task.signature.answers is Answers.MARKED else None

    def of_sequences(self, predictions: Predictions) -> Tensor:
        return exact_match(predictions.probability, predictions.distribution, predictions.counts).double()


@final
class RocAuc(Measurement):
    """Area under the ROC curve.

    Languages: how often a member outscores a non-member of the same length, where a string's score is the log probability of
    its least probable step, its end included. Other tasks: how often a legal token outranks an illegal one; undefined where
    every token is legal. Ties count half. The threshold is our choice.

    Scores of strings are rounded to SCORE_DIGITS. A model without a position code gives whole sets of strings the same score,
    and rounding errors would otherwise decide which are ahead and move the AUC by as much as 0.03.
    """

    name = "roc_auc"
    label = "ROC AUC"
    title = "area under the curve (ROC AUC)"
    lower_is_better = False
    range = (0.0, 1.0)
    worst = 0.5
    threshold = 0.9
    landmark = (0.5, "chance")
    partial = True

    def source(self, task: Task) -> Source:
        return "strings" if isinstance(task, Language) else "contexts"

    def of_contexts(self, predictions: Predictions) -> Tensor:
        return roc_auc(predictions.probability, predictions.distribution > 0)

    def of_strings(self, scores: StringScores) -> Tensor:
        return roc_auc(scores.log_probability.amin(-1).round(decimals=SCORE_DIGITS), scores.is_member)


@final
class IllegalMass(Measurement):
    """Probability of illegal tokens (p* = 0) under the model, mean over answers: how often a sampled token is illegal."""

    name = "illegal_mass"
    label = "illegal mass"
    title = "probability of illegal tokens"
    lower_is_better = True
    range = (0.0, 1.0)
    worst = 1.0
    threshold = 0.1
    landmark = (0.0, "exact")

    def of_contexts(self, predictions: Predictions) -> Tensor:
        return illegal_mass(predictions.probability, predictions.distribution)


@final
class IllegalTop(Measurement):
    """Share of answers whose most probable token is illegal, p* = 0 (arXiv 2510.08341, version 1)."""

    name = "illegal_top"
    label = "illegal top"
    title = "share of most probable tokens that are illegal"
    lower_is_better = True
    range = (0.0, 1.0)
    worst = 1.0
    threshold = 0.1
    landmark = (0.0, "exact")

    def of_contexts(self, predictions: Predictions) -> Tensor:
        return illegal_top(predictions.probability, predictions.distribution).double()


@hookimpl
def lgbench_measurements() -> Iterable[Measurement]:
    return (
        TotalVariation(),
        Accuracy(),
        ExactMatch(),
        RocAuc(),
        IllegalMass(),
        IllegalTop(),
        *of_attention.PROBES,
        *of_stream.PROBES,
    )
