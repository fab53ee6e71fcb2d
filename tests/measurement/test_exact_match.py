"""Exact match under teacher forcing, against answers that a model generates token by token."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.toy_registries import experiment_of, settings
from torch import Tensor

from lgbench import Answers, Batch, Predictions, Signature, Task, Tokens
from lgbench.measurement.evaluate import evaluate, values_of_sequences
from lgbench.randomness import Random
from lgbench_measurements import ExactMatch

BITS, SEPARATOR = 2, 2


class Copy(Task):
    """A context is a bit string, a separator, and the string again; every bit of the copy is asked for."""

    name = family = "copy"
    version = 1
    signature = Signature(Tokens(3), BITS, Answers.MARKED)
    train_lengths = (1, 4)

    def sample(self, length: int, random: Random) -> Batch:
        bits = random.integers(BITS, length)
        inputs = torch.cat([bits, torch.full_like(bits[:, :1], SEPARATOR), bits[:, :-1]], 1)  # the last bit is only asked for
        p = torch.full((random.n, 2 * length, BITS), 0.5)
        p[:, length:] = F.one_hot(bits, BITS).float()
        return Batch(inputs, p, (torch.arange(2 * length) >= length).float().repeat(random.n, 1))


def generated(model, inputs: Tensor, length: int) -> Tensor:
    """Copies that a model writes greedily after the separator, (n, length)."""
    written = inputs[:, : length + 1]
    for _ in range(length):
        written = torch.cat([written, model(written)[:, -1:].argmax(-1)], 1)
    return written[:, length + 1 :]


def forgetful(inputs: Tensor) -> Tensor:
    """Logits of a model that copies, except after some prefixes: whether it errs depends on all tokens that it has read."""
    code = torch.zeros(inputs.shape, dtype=torch.int64)
    state = torch.zeros(len(inputs), dtype=torch.int64)
    for place, token in enumerate(inputs.unbind(1)):
        state = (state * 31 + token * 17 + 7) % 1009
        code[:, place] = state
    where = (inputs == SEPARATOR).int().argmax(1)
    places = torch.arange(inputs.shape[1]) - where[:, None]
    right = inputs.gather(1, places.clamp(min=0)) % BITS
    return F.one_hot(right ^ (code % 5 == 0), BITS).float()


@pytest.mark.parametrize("length", [1, 2, 4])
def test_teacher_forced_exact_match_is_that_of_greedy_generation(length):
    batch = Copy().sample(length, Random(300, seed=length))
    predictions = Predictions(forgetful(batch.inputs), batch.distribution, batch.weights)
    found = ExactMatch().of_sequences(predictions).bool()
    expected = (generated(forgetful, batch.inputs, length) == batch.inputs[:, :length]).all(1)
    assert torch.equal(found, expected)
    assert 0 < found.double().mean() < 1


def test_boards_get_the_share_of_contexts_whose_answer_is_generated_whole():
    experiment = experiment_of(Copy(), *settings(1, 4, 8, 200, 0))
    scores = evaluate(experiment, {"raw": forgetful}, torch.device("cpu"))
    found = {score.length: (score.value, score.n) for score in scores if score.metric == "exact_match"}
    assert sorted(found) == [1, 2, 4, 8]
    for length, (value, n) in found.items():
        assert n == 200
        accuracy = next(s for s in scores if s.metric == "accuracy" and s.length == length)
        assert accuracy.n == 200 * length  # one value an answer there, one a context here
        assert value <= accuracy.value


def test_a_context_with_an_answer_that_is_not_finite_is_not_matched():
    batch = Copy().sample(3, Random(4))
    logits = batch.distribution.log().clamp(min=-50)
    logits[0, -1] = torch.nan
    logits[1, 0] = torch.nan  # it does not count
    weights = batch.weights.clone()
    weights[2] = 0
    found = values_of_sequences(ExactMatch(), Predictions(logits, batch.distribution, weights))
    assert found[0] == 0 and found[1] == found[3] == 1 and found[2].isnan()
