"""The checks of measurements find each breach of the contract and name it, and find nothing in those that keep it."""

from __future__ import annotations

import pytest
import torch
from helpers.breaking import check_of, complaint, complaints, table, unproven
from helpers.toy_registries import but

from lgbench import Answers, Language, Measurement, Reading


class Divergence(Measurement):
    """KL divergence from p* in nats, at most 20."""

    name = "divergence"
    label = title = "divergence"
    lower_is_better = True
    range = (0.0, 20.0)
    worst = 20.0
    threshold = 0.1
    landmark = (0.0, "exact")

    @staticmethod
    def between(exact, log_probability):
        return torch.where(exact > 0, exact * (exact.log() - log_probability), 0.0).sum(-1).clamp(0, 20)

    def of_contexts(self, predictions):
        return self.between(predictions.distribution.double(), predictions.logits.double().log_softmax(-1))

    def context_free(self, distribution, test):
        return self.between(test.double(), distribution.double().mean(0).log())


class Likelihood(Measurement):
    """The mean log probability of members less that of other strings; undefined on contexts where all answers are legal."""

    name = "likelihood_gap"
    label = title = "likelihood"
    lower_is_better = False
    range = (-1000.0, None)
    worst = 0.0
    partial = True

    def source(self, task):
        return "strings" if isinstance(task, Language) else "contexts"

    def of_contexts(self, predictions):
        legal = predictions.distribution > 0
        gap = (predictions.probability.nan_to_num(0) * torch.where(legal, 1.0, -1.0)).sum(-1)
        return gap.masked_fill(legal.all(-1), torch.nan)

    def of_strings(self, scores):
        likelihood = scores.log_probability.nan_to_num(0).sum(-1)
        return likelihood[scores.is_member].mean() - likelihood[~scores.is_member].mean()


class FinalNorm(Measurement):
    """Norm of the final hidden state."""

    name = "final_norm"
    label = title = "norm"
    lower_is_better = None
    range = (0.0, None)

    def source(self, task):
        return "internals"

    def of_internals(self, internals):
        if internals.final is not None:
            yield Reading(internals.final.norm(dim=-1))


class FirstWrong(Measurement):
    """Share of the counted answers before the first wrong one, 1 for a context without any wrong one."""

    name = "first_wrong"
    label = title = "right before the first wrong"
    lower_is_better = False
    range = (0.0, 1.0)
    worst = 0.0

    def source(self, task):
        return "sequences" if task.signature.answers is Answers.MARKED else None

    def of_sequences(self, predictions):
        best = predictions.distribution == predictions.distribution.amax(-1, keepdim=True)
        chosen = predictions.probability.nan_to_num(0).argmax(-1, keepdim=True)
        right = best.gather(-1, chosen).squeeze(-1) | ~predictions.counts
        return (right.cumprod(-1) * predictions.counts).sum(-1).double() / predictions.counts.sum(-1).clamp(min=1)


DIVERGENCE, LIKELIHOOD, NORM, FIRST = Divergence(), Likelihood(), FinalNorm(), FirstWrong()


def valued(change, thing=DIVERGENCE):
    """The measurement with other values: `change` gets them, and the predictions."""
    return but(thing, of_contexts=lambda self, predictions: change(thing.of_contexts(predictions), predictions))


def stringing(change):
    """The measurement of strings with another value."""
    return but(LIKELIHOOD, of_strings=lambda self, scores: change(LIKELIHOOD.of_strings(scores), scores))


def sequencing(change):
    """The measurement of whole answers with other values."""
    return but(FIRST, of_sequences=lambda self, predictions: change(FIRST.of_sequences(predictions), predictions))


def reading(change):
    """The probe with other values, of the final hidden state's first feature."""

    def of_internals(self, internals):
        return [] if internals.final is None else [Reading(change(internals.final[:, 0]))]

    return but(NORM, of_internals=of_internals)


def guessing(constant):
    """A context-free baseline that is not the best."""
    return but(DIVERGENCE, context_free=lambda self, fitted, test: self.between(test.double(), constant(test.double()).log()))


DESCRIBED = "its name, range, worst value, threshold and landmark make sense"
SOURCES = "it says for every task what it is computed from"
IN_RANGE = "each answer or context has a value in its range"
EXACT = "the exact prediction is the best"
ALONE = "each answer or context is measured by itself"
WORST = "an answer that is not finite has the worst value"
CONTEXT_FREE = "its context-free baseline is that of the best constant prediction"
READS = "it reads values in its range, of contexts or of all"
BARE = "it reads nothing of a model that lacks what it looks at"
COUNTED = "answers that do not count change nothing"
SEPARATED = "strings whose scores are separated have the best value"

ROWS = [
    (but(DIVERGENCE, lower_is_better=None), SOURCES, "only probes may be without lower_is_better and worst"),
    (but(DIVERGENCE, version=0), DESCRIBED, "its version is 0, expected a number from 1 up"),
    (but(DIVERGENCE, range=(20.0, 0.0)), DESCRIBED, "its range is (20.0, 0.0), expected the least and the greatest value"),
    (but(DIVERGENCE, landmark=(-1.0, "exact")), DESCRIBED, "its landmark is -1.0, which is not a number in its range"),
    (
        but(DIVERGENCE, source=lambda self, task: "weights"),
        SOURCES,
        "its source on a task with an answer at every prefix is 'weights', expected contexts",
    ),
    (but(DIVERGENCE, source=lambda self, task: "strings"), SOURCES, "at every prefix is strings, and only a Language"),
    (but(DIVERGENCE, source=lambda self, task: task.weights), SOURCES, "it raised AttributeError: 'AnyTask' object has no"),
    (valued(lambda values, predictions: values.mean()), IN_RANGE, "its values are () float64, expected (24, 3) float64"),
    (valued(lambda values, predictions: -values), IN_RANGE, "prediction has a value outside its range, (0.0, 20.0): [-"),
    (valued(lambda values, predictions: values.where(values > 0, torch.nan)), IN_RANGE, "is NaN: set partial = True if"),
    (
        but(valued(lambda values, predictions: values.where(values > 0.1, torch.nan)), partial=True),
        IN_RANGE,
        "which answers are undefined depends on the model: p* alone may decide it",
    ),
    (valued(lambda values, predictions: values + torch.rand(())), IN_RANGE, "it draws from torch's global generator"),
    (but(DIVERGENCE, lower_is_better=False), EXACT, "higher is better, and the uniform prediction has "),
    (valued(lambda values, predictions: values * 0 + 3), EXACT, "that was tried has the value 3: it measures nothing"),
    (valued(lambda values, predictions: values / values.max()), ALONE, "the value of an answer depends on the others"),
    (
        sequencing(lambda values, predictions: (values == 1).double().mean().expand(len(values))),
        ALONE,
        "value of a context depends",
    ),
    (but(LIKELIHOOD, worst=-1.0), WORST, "a partial measurement itself gives the worst value, -1, where the logits are NaN"),
    (valued(lambda values, predictions: values.item() if values.isnan().any() else values), WORST, "it raised RuntimeError: "),
    (guessing(lambda p: torch.full_like(p, 0.25)), CONTEXT_FREE, ", and the mean of p* has "),
    (stringing(lambda value, scores: value.expand(2)), SEPARATED, "of_strings gives (2,) float64, expected a tensor"),
    (stringing(lambda value, scores: -value), SEPARATED, "separated strings have -40.59, and equal ones "),
    (
        stringing(lambda value, scores: value + 1 if scores.log_probability.isnan().any() else value),
        SEPARATED,
        "strings whose scores are NaN have 1, expected the worst value, 0",
    ),
    (but(FIRST, source=lambda self, task: "sequences"), SOURCES, "each of its answers has a length of its own"),
    (
        sequencing(lambda values, predictions: values * (predictions.probability.amax(-1) > 0.4).all(-1)),
        COUNTED,
        "it reads answers with the weight 0: use `predictions.counts`",
    ),
    (
        sequencing(lambda values, predictions: values * predictions.distribution.amax((-1, -2))),
        COUNTED,
        "it reads answers with the weight 0: use `predictions.counts`",
    ),
    (
        sequencing(lambda values, predictions: values / predictions.counts.shape[1]),
        COUNTED,
        "without the answers with the weight 0, the value of the exact prediction is another: use `predictions.counts`",
    ),
    (but(NORM, of_internals=lambda self, internals: [3.0]), READS, "of_internals gives float, expected lgbench.Reading"),
    (reading(lambda value: value[:3]), READS, "the value of a reading is (3,) float64, expected (24,), or no dimensions"),
    (reading(lambda value: -value.abs()), READS, "a reading has a value beyond its range, (0.0, None)"),
    (reading(lambda value: value.mul_(2)), READS, "writes into tensors that other measurements read"),
    (
        but(DIVERGENCE, context_free=lambda self, fitted, test: DIVERGENCE.context_free(fitted, test.add_(0))),
        CONTEXT_FREE,
        "writes into tensors that other measurements read",
    ),
    (
        but(NORM, of_internals=lambda self, internals: [Reading(internals.final.norm(dim=-1))]),
        BARE,
        "it raised AttributeError:",
    ),
]
RIGHT = [DIVERGENCE, LIKELIHOOD, NORM, FIRST]


@pytest.mark.parametrize(("thing", "rule", "words"), table(ROWS))
def test_a_breach_is_found_and_named(registry, thing, rule, words):
    assert words in complaint(thing, rule, registry)


def test_nothing_is_found_in_measurements_that_keep_the_contract(registry):
    assert complaints(RIGHT, registry) == []


def test_every_check_of_measurements_finds_something_above(registry):
    assert unproven(RIGHT, ROWS, registry) == set()


NOTES = [
    (LIKELIHOOD, CONTEXT_FREE, "it has no `context_free`: boards show no context-free baseline of it"),
    (but(DIVERGENCE, source=lambda self, task: None), SOURCES, "not checked: it is defined for no task that is installed"),
]


@pytest.mark.parametrize(("thing", "rule", "words"), table(NOTES))
def test_something_allowed_and_worth_knowing_is_a_note(registry, thing, rule, words):
    assert words in check_of(thing, rule, registry)()
