from __future__ import annotations

from itertools import permutations
from math import exp

import pytest
import torch
from helpers.registries import parts_of
from helpers.uniform import looks_uniform
from torch import Tensor

from lgbench import Random, SublayerSpec
from lgbench.extensions.registry import Registry
from lgbench_measurements.functions import total_variation
from lgbench_norms import SCHEMES
from lgbench_tasks.set_complement import SetComplement
from lgbench_transformer.transformer import CurrentTokens, SelfAttention

PARTS = parts_of(Registry.load())
NORMS = {scheme.name: scheme for scheme in SCHEMES}


def distance_in_closed_form(separation: float, seen: int, size: int) -> float:
    return seen * exp(-separation) / ((size - seen) + seen * exp(-separation))


def simplex(size: int) -> Tensor:
    """`size` corners around the origin in size - 1 dimensions, with products (i = j) - 1 / size: (size, size - 1)."""
    centred = torch.eye(size, dtype=torch.float64) - 1 / size
    corners = torch.linalg.svd(centred).U[:, : size - 1]
    torch.testing.assert_close(corners @ corners.T, centred)
    return corners


def separations(norm: str, size: int, scale: float, gain: float = 1.0) -> list[float]:
    """Legal minus illegal logit after 1 .. size - 1 tokens: constant attention, logit = minus likeness to the mixture.

    scale: of the values. gain: of the norm.
    """
    width = size - 1
    corners = simplex(size)
    spec = SublayerSpec("attention", 1, 1, width)
    attention = SelfAttention(PARTS, spec, False, CurrentTokens()).double()
    scheme = NORMS[norm].output(spec).double()
    with torch.no_grad():
        attention.query.weight.zero_()
        attention.key.weight.zero_()
        attention.value.weight.copy_(torch.eye(width) * scale)
        attention.out.weight.copy_(torch.eye(width))
        for parameter in scheme.parameters():
            parameter.fill_(gain)
        inputs, distribution, _ = SetComplement(size).sample(width, Random(1))
        logits = -(scheme(attention(corners[inputs])) @ corners.T)[0]
    found = []
    for row, answer in zip(logits, distribution[0], strict=True):
        legal, illegal = row[answer > 0], row[answer == 0]
        torch.testing.assert_close(legal, legal[:1].expand_as(legal))
        torch.testing.assert_close(illegal, illegal[:1].expand_as(illegal))
        found.append((legal[0] - illegal[0]).item())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("size", "length"), [(4, 3), (10, 7), (64, 16), (64, 63)])
def test_the_answer_is_uniform_over_the_tokens_not_yet_seen(size: int, length: int) -> None:
    inputs, distribution, _ = SetComplement(size).sample(length, Random(30, 1))
    for sequence, rows in zip(inputs.tolist(), distribution.tolist(), strict=True):
        for end, row in enumerate(rows, start=1):
            unseen = set(range(size)) - set(sequence[:end])
            assert row == pytest.approx([1 / len(unseen) if token in unseen else 0.0 for token in range(size)])


@pytest.mark.parametrize("length", [1, 16, 63])
def test_no_token_comes_twice(length: int) -> None:
    inputs, _, _ = SetComplement().sample(length, Random(200, 2))
    assert inputs.shape == (200, length)
    assert all(len(set(sequence)) == length and set(sequence) <= set(range(64)) for sequence in inputs.tolist())


@pytest.mark.parametrize("length", [2, 4])
def test_every_order_is_equally_likely(length: int) -> None:
    inputs, _, _ = SetComplement(5).sample(length, Random(12_000, 3))
    assert looks_uniform(map(tuple, inputs.tolist()), set(permutations(range(5), length)))


def test_the_published_distance_is_what_the_metric_measures() -> None:
    assert distance_in_closed_form(20 / 16, 16, 32) == pytest.approx(0.22270, abs=5e-6)
    _, distribution, _ = SetComplement(32).sample(31, Random(3, 4))
    seen = torch.arange(1, 32)
    logits = (distribution > 0) * (20 / seen)[:, None]
    measured = total_variation(logits.softmax(-1), distribution)
    expected = torch.tensor([distance_in_closed_form(20 / s, s, 32) for s in seen.tolist()])
    torch.testing.assert_close(measured, expected.expand(3, -1), atol=1e-6, rtol=1e-5)
    assert measured[0, 15].item() == pytest.approx(0.22270, abs=5e-6)


@pytest.mark.parametrize("norm", ["no-norm", "pre-norm"])
@pytest.mark.parametrize("size", [8, 32])
def test_without_a_norm_on_the_output_the_separation_falls_like_one_over_the_number_seen(norm: str, size: int) -> None:
    assert separations(norm, size, scale=20) == pytest.approx([20 / seen for seen in range(1, size)])


@pytest.mark.parametrize("norm", ["post-norm", "peri-norm"])
@pytest.mark.parametrize("size", [8, 32])
def test_a_norm_on_the_attention_output_sharpens_the_separation_again(norm: str, size: int) -> None:
    found = separations(norm, size, scale=20, gain=3)
    root = (size - 1) ** 0.5
    expected = [3 * root * (size / (seen * (size - seen))) ** 0.5 for seen in range(1, size)]
    assert found == pytest.approx(expected, rel=1e-4)  # off by the norm's epsilon
    assert found.index(min(found)) + 1 == size // 2
