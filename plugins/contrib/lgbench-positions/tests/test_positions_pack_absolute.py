from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor, nn

from lgbench.noise import Noise
from lgbench_positions.absolute import RandomisedLearned, Sinusoidal

MARKED = torch.arange(6.0)[:, None].expand(6, 3)
"""A table that says of each row which it is."""


def published_sinusoid(position: int, feature: int, width: int) -> float:
    angle = position / 10_000 ** (2 * (feature // 2) / width)
    return math.cos(angle) if feature % 2 else math.sin(angle)


def table_of(positions: int = 6, width: int = 3) -> nn.Module:
    return RandomisedLearned().embed(width, positions)


def marked() -> nn.Module:
    module = table_of()
    module.load_state_dict({"table": MARKED}, strict=False)
    return module


def rows(module: nn.Module, length: int) -> list[int]:
    code: Tensor = module(torch.zeros(2, length, 3))
    assert torch.equal(code[0], code[1])
    assert torch.equal(code, code[..., :1].expand_as(code))
    return [int(row) for row in code[0, :, 0].tolist()]


def draw(module: nn.Module, generator: torch.Generator) -> None:
    (noise,) = (each for each in module.modules() if isinstance(each, Noise))
    noise.value.uniform_(generator=generator)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 63])
def test_sinusoids_are_the_published_ones_also_at_an_odd_width(width: int) -> None:
    x = torch.randn(2, 50, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    module = Sinusoidal().embed(width, 50)
    expected = torch.tensor([[published_sinusoid(m, i, width) for i in range(width)] for m in range(50)], dtype=torch.float64)
    torch.testing.assert_close(module(x), x + expected, atol=1e-12, rtol=0)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is not supported:DeprecationWarning")
def test_x_transformers_has_the_same_sinusoids_with_cosines_after_all_sines() -> None:
    from x_transformers.x_transformers import ScaledSinusoidalEmbedding

    x = torch.zeros(1, 40, 16)
    theirs = ScaledSinusoidalEmbedding(16)
    with torch.no_grad():
        theirs.scale.fill_(1.0)
        expected = theirs(x)
    ours = Sinusoidal().embed(16, 40)(x)[0]
    torch.testing.assert_close(torch.cat((ours[:, ::2], ours[:, 1::2]), dim=-1), expected, atol=1e-5, rtol=0)


def test_sinusoids_keep_their_decimals_at_a_far_position() -> None:
    code = Sinusoidal().embed(63, 16_385)(torch.zeros(1, 16_385, 63))[0, -1]
    assert code.tolist() == pytest.approx([published_sinusoid(16_384, i, 63) for i in range(63)], abs=1e-6)


@pytest.mark.parametrize("length", [1, 3, 6])
def test_in_evaluation_rows_are_the_first_whatever_the_noise(length: int) -> None:
    module = marked().eval()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        draw(module, generator)
        assert rows(module, length) == list(range(length))


def test_in_training_rows_follow_the_noise_alone() -> None:
    module = marked().train()
    draw(module, torch.Generator().manual_seed(0))
    first = [rows(module, 3) for _ in range(3)]
    draw(module, torch.Generator().manual_seed(1))
    other = rows(module, 3)
    draw(module, torch.Generator().manual_seed(0))
    assert first == [rows(module, 3)] * 3
    assert other != first[0]


def test_in_training_every_ordered_subset_is_as_likely_as_every_other() -> None:
    module = marked().train()
    generator = torch.Generator().manual_seed(0)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(4_000):
        draw(module, generator)
        seen[tuple(rows(module, 3))] += 1
    subsets = list(combinations(range(6), 3))  # each strictly increasing
    assert set(seen) <= set(subsets)
    assert chisquare([seen[subset] for subset in subsets]).pvalue > 0.01


def test_an_input_of_the_full_length_uses_all_rows_in_order_in_training_too() -> None:
    module = marked().train()
    draw(module, torch.Generator().manual_seed(0))
    assert rows(module, 6) == [0, 1, 2, 3, 4, 5]


def test_before_any_noise_is_drawn_rows_still_increase() -> None:
    chosen = rows(marked().train(), 4)
    assert chosen == sorted(set(chosen))


def test_the_gradient_reaches_the_chosen_rows_and_no_others() -> None:
    module = marked().train()
    draw(module, torch.Generator().manual_seed(3))
    chosen = rows(module, 3)
    module(torch.zeros(4, 3, 3)).sum().backward()
    (gradient,) = (parameter.grad for parameter in module.parameters())
    assert gradient is not None
    assert gradient[:, 0].tolist() == [4.0 if row in chosen else 0.0 for row in range(6)]


@pytest.mark.parametrize("training", [True, False])
def test_an_input_longer_than_the_table_is_refused_in_words(training: bool) -> None:
    with pytest.raises(ValueError, match="6 rows.* 7"):
        table_of().train(training)(torch.zeros(1, 7, 3))


def test_a_new_table_is_small_beside_an_embedding() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        (table,) = table_of(500, 100).parameters()
    assert table.std().item() == pytest.approx(0.02, rel=0.02)
    assert table.mean().item() == pytest.approx(0.0, abs=5e-4)
