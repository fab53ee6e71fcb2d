"""Predictive position coupling: predicted ids against the coupling of addition, and decoding against one id after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from lgbench import Answers, Parts, Random, Signature, Tokens, Unsupported, Vectors
from lgbench.noise import Noise
from lgbench_norms import SCHEMES
from lgbench_positions.predicted import PredictedCoupling, Predicting, RowOfEach, WithLoss
from lgbench_transformer.softmax import NoPosition, Softmax

DIGITS, EQUALS, IDS = 10, 11, 24
ADDITION = Signature(Tokens(12, IDS), DIGITS, Answers.MARKED)
NORMS = {scheme.name: scheme for scheme in SCHEMES}


def build(signature: Signature = ADDITION, **options: Any) -> Predicting:
    parts = Parts(NORMS["pre-norm"], Softmax(), NoPosition(), train_positions=12, test_positions=40)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return PredictedCoupling().build(signature, parts, **options)


def coupled(length: int, n: int, seed: int = 0) -> Tensor:
    """a + b = sum, lowest digits first, with the ids of position coupling: (n, 3 L + 3, 2)."""
    digits = 10**length
    a, b = Random(n, seed).integers(digits, 2).unbind(1)
    numbers = [
        torch.stack([x // 10**place % 10 for place in range(size)], 1)
        for x, size in ((a, length), (b, length), (a + b, length + 1))
    ]
    sign = torch.ones(n, 1, dtype=torch.int64)
    tokens = torch.cat([numbers[0], 10 * sign, numbers[1], EQUALS * sign, numbers[2]], 1)
    places = torch.arange(1, length + 2)
    ids = torch.cat([places[:-1], sign[0] * 0, places[:-1], sign[0] * 0, places])
    return torch.stack([tokens, ids.expand_as(tokens)], -1)


class Counting(nn.Module):
    """A decoder that says of each token that the row of the next one is one more, from a wrong one on at some place."""

    def __init__(self, code: RowOfEach, wrong_at: int | None = None) -> None:
        super().__init__()
        self.code, self.wrong_at, self.rows = code, wrong_at, []

    def forward(self, tokens: Tensor) -> Tensor:
        rows = self.code.current
        assert rows is not None
        self.rows.append(rows)
        following = (rows + 1) % IDS
        if self.wrong_at is not None:
            following[:, self.wrong_at] = 20
        return (
            F.one_hot(torch.cat([tokens[..., None] % DIGITS, DIGITS + following[..., None]], -1), DIGITS + IDS).sum(2).float()
        )


def test_predicted_ids_are_those_of_the_coupling() -> None:
    code = RowOfEach(IDS)
    decoder = Counting(code)
    inputs = coupled(4, 3)
    scrambled = inputs.clone()
    scrambled[:, -5:, 1] = 0  # ids of the sum, which the model must not need
    logits = Predicting(decoder, code, DIGITS, EQUALS).eval()(scrambled)
    assert torch.equal(decoder.rows[-1], inputs[..., 1])
    assert torch.equal(logits.argmax(-1), inputs[..., 0] % DIGITS)


def test_right_guesses_take_one_pass_and_wrong_ones_are_followed() -> None:
    code = RowOfEach(IDS)
    inputs = coupled(4, 3)
    right = Counting(code)
    Predicting(right, code, DIGITS, EQUALS).eval()(inputs)
    assert len(right.rows) == 1
    wrong = Counting(code, wrong_at=11)
    Predicting(wrong, code, DIGITS, EQUALS).eval()(inputs)
    assert wrong.rows[-1][:, -5:].tolist() == [[1, 2, 20, 21, 22]] * 3


@torch.no_grad()
def test_decoding_is_one_id_after_the_other() -> None:
    model = build(heads=2, width=16).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7, generator=torch.Generator().manual_seed(len(parameter)))
    inputs = coupled(5, 6)
    tokens, ids = inputs.unbind(-1)
    own = ids.clone()
    for place in range(12, inputs.shape[1]):  # the first digit of the sum, and those after it
        own[:, place] = model.answers(tokens, own)[1][:, place - 1].argmax(-1)
    assert not torch.equal(own, ids)
    torch.testing.assert_close(model(inputs), model.answers(tokens, own)[0])
    other = inputs.clone()
    other[:, 12:, 1] = IDS - 1
    assert torch.equal(model(other), model(inputs))


def test_the_further_loss_is_minimized_and_changes_no_logit() -> None:
    w, x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)), torch.randn(3, 4)

    def joined(w: Tensor, x: Tensor) -> Tensor:
        return WithLoss.apply(w * x, (w**2).mean()).sin().sum()

    def added(w: Tensor, x: Tensor) -> Tensor:
        return (w * x).sin().sum() + (w**2).mean()

    torch.testing.assert_close(vmap(grad(joined))(w, x), vmap(grad(added))(w, x))
    torch.testing.assert_close(grad(joined)(w[0], x[0]), grad(added)(w[0], x[0]))
    assert torch.equal(WithLoss.apply(w, w.sum()), w)


@pytest.mark.parametrize("noise", [0.0, 0.37, 0.999])
def test_a_training_step_is_that_of_both_cross_entropies(noise: float) -> None:
    model = build(width=16).train()
    (start,) = (module for module in model.modules() if isinstance(module, Noise))
    start.value.fill_(noise)
    inputs = coupled(3, 5)
    tokens, ids = inputs.unbind(-1)
    right = Random(5, 1).integers(DIGITS, inputs.shape[1])
    F.cross_entropy(model(inputs).mT, right).backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    rows = ids + int(noise * (IDS - 4))
    logits, following = model.answers(tokens, rows)
    written = slice(8, None)  # the sum, after three digits, +, three digits and =
    next_ids = F.cross_entropy(following[:, 7:-1].mT, rows[:, written])
    (F.cross_entropy(logits.mT, right) + next_ids).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-6, rtol=1e-4)
        assert parameter.grad.any(), name


@pytest.mark.slow
def test_a_trained_model_predicts_the_coupling_of_addition_beyond_its_lengths() -> None:
    model = build(layers=1, width=32).train()
    (start,) = (module for module in model.modules() if isinstance(module, Noise))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(800):
        inputs = coupled(1 + step % 4, 32, seed=step)
        start.value.uniform_(generator=generator)
        logits = model(inputs)
        loss = F.cross_entropy(logits[:, -6:-1].flatten(0, 1), inputs[:, -5:, 0].flatten() % DIGITS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    code, seen = model.eval().code, []
    model.decoder.register_forward_pre_hook(lambda module, given: seen.append(code.current))
    for length in (4, 8):
        inputs = coupled(length, 16, seed=10**6)
        with torch.no_grad():
            model(inputs)
        assert torch.equal(seen[-1], inputs[..., 1])


def test_without_ids_places_are_predicted() -> None:
    model = build(Signature(Tokens(4), 3, Answers.EVERY_PREFIX), width=16)
    assert model.code.count == 40 and model.separator == 3
    assert model.eval()(torch.randint(4, (2, 7))).shape == (2, 7, 3)


@pytest.mark.parametrize(
    ("signature", "options", "sentence"),
    [
        (Signature(Vectors(3), 4, Answers.MARKED), {}, "choose a task that reads tokens and answers at many positions"),
        (Signature(Tokens(3), 4, Answers.LAST), {}, "choose a task that reads tokens and answers at many positions"),
        (ADDITION, {"separator": 12}, "the separator 12 is none of the 12 tokens"),
    ],
)
def test_what_it_cannot_do_is_refused(signature: Signature, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(Unsupported, match=sentence):
        build(signature, **options)
