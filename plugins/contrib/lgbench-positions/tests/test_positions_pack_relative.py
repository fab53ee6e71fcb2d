from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from lgbench import AttentionSpec, Position, Unsupported
from lgbench_positions.relative import Alibi, Fire

BIASING = [Alibi(), Fire()]
EVERY_BIASING = pytest.mark.parametrize("position", BIASING, ids=[position.name for position in BIASING])


def spec_of(heads: int = 2, train_keys: int = 40, cross_attention: bool = False) -> AttentionSpec:
    return AttentionSpec(1, 1, 3 * heads, heads, train_keys, cross_attention=cross_attention)


def built(position: Position, heads: int = 2, train_keys: int = 40) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = position.bias(spec_of(heads, train_keys))
    assert module is not None
    return module


def bias(module: nn.Module, queries: int, keys: int, heads: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    biases: Tensor = module(torch.zeros(1, heads, queries, 3, dtype=dtype), torch.zeros(1, heads, keys, 3, dtype=dtype))
    assert biases.shape == (heads, queries, keys)
    assert biases.dtype == dtype
    return biases


def seen(biases: Tensor) -> Tensor:
    queries, keys = biases.shape[-2:]
    return biases.masked_fill(torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1), 0.0)


def fire(parameters: Mapping[str, Tensor], first_threshold: float, head: int, i: int, j: int) -> float:
    """f(psi(i - j) / psi(max(L, i))), written plainly."""
    c = abs(parameters["log_scale"].item())
    threshold = abs(first_threshold * parameters["threshold_ratio"].item())
    share = math.log(c * (i - j) + 1) / math.log(c * max(threshold, i) + 1)
    inner, outer = ((parameters[f"bias_of.{n}.weight"].tolist(), parameters[f"bias_of.{n}.bias"].tolist()) for n in (0, 2))
    hidden = [max(0.0, weight[0] * share + offset) for weight, offset in zip(*inner, strict=True)]
    assert len(hidden) == 32
    return sum(w * x for w, x in zip(outer[0][head], hidden, strict=True)) + outer[1][head]


def slopes(heads: int) -> list[float]:
    return (-bias(built(Alibi(), heads), 1, 2, heads)[:, 0, 0]).tolist()


def test_eight_heads_have_the_slopes_of_the_paper() -> None:
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is not supported:DeprecationWarning")
@pytest.mark.parametrize("heads", range(1, 18))
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (3, 7), (1, 7)])
def test_x_transformers_gives_the_same_linear_biases(heads: int, queries: int, keys: int) -> None:
    from x_transformers.x_transformers import AlibiPositionalBias

    expected = AlibiPositionalBias(heads)(queries, keys)
    torch.testing.assert_close(seen(bias(built(Alibi(), heads), queries, keys, heads)), seen(expected))


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (4, 9), (1, 9)])
@pytest.mark.parametrize("c", [0.1, 2.0, -0.5])
@pytest.mark.parametrize("ratio", [1.0, 0.4, -0.7])
def test_fire_is_the_published_equation(queries: int, keys: int, c: float, ratio: float) -> None:
    module = built(Fire(), train_keys=20).double()
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        parameters["log_scale"].fill_(c)
        parameters["threshold_ratio"].fill_(ratio)
        actual = bias(module, queries, keys, dtype=torch.float64)
    for head in range(2):
        for query in range(queries):
            i = keys - queries + query
            for j in range(i + 1):
                expected = fire(parameters, 5.0, head, i, j)
                assert actual[head, query, j].item() == pytest.approx(expected, abs=1e-5)


def test_fire_starts_with_the_published_c_and_a_quarter_of_the_training_positions() -> None:
    module = built(Fire(), train_keys=40)
    parameters = dict(module.named_parameters())
    actual = bias(module, 30, 30)
    assert parameters["log_scale"].item() == pytest.approx(0.1)
    for i in (0, 9, 10, 11, 29):  # on both sides of the threshold
        assert actual[1, i, 0].item() == pytest.approx(fire(parameters, 10.0, 1, i, 0), abs=1e-5)


def test_the_argument_of_fire_is_a_share() -> None:
    for length in (1, 2, 10, 11, 400):
        shares = built(Fire()).argument(torch.zeros(length, 3), torch.zeros(length, 3))
        assert shares.min() == 0
        assert shares.max() <= 1
        assert torch.equal(shares.diagonal(), torch.zeros(length))
        if length > 10:  # from the threshold on, the first key is the furthest there is
            assert shares[10:, 0].tolist() == pytest.approx([1.0] * (length - 10), abs=1e-4)


@pytest.mark.parametrize("name", ["log_scale", "threshold_ratio"])
def test_fire_is_finite_when_a_learned_scale_reaches_nothing(name: str) -> None:
    module = built(Fire())
    with torch.no_grad():
        dict(module.named_parameters())[name].fill_(0.0)
    biases = bias(module, 5, 5)
    biases.sum().backward()
    assert biases.isfinite().all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())


def test_gradients_reach_everything_that_fire_learns() -> None:
    module = built(Fire())
    seen(bias(module, 8, 8)).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name


def test_fire_learns_where_its_threshold_is() -> None:
    module = built(Fire(), train_keys=400).double()
    ratio = dict(module.named_parameters())["threshold_ratio"]
    step = 1e-5

    def total() -> Tensor:
        return bias(module, 6, 6, dtype=torch.float64).square().sum()

    (gradient,) = torch.autograd.grad(total(), ratio)
    with torch.no_grad():
        ratio.add_(step)
        above = total()
        ratio.sub_(2 * step)
        below = total()
    assert gradient.item() == pytest.approx(((above - below) / (2 * step)).item(), rel=1e-6)


@EVERY_BIASING
def test_sixteen_thousand_keys_are_finite(position: Position) -> None:
    biases = bias(built(position), 1, 16_385)
    assert biases.isfinite().all()
    assert biases.std() > 0


@EVERY_BIASING
def test_keys_that_are_not_seen_are_as_far_as_the_query_itself(position: Position) -> None:
    biases = bias(built(position), 4, 6)
    for i in range(4):
        own = biases[:, i, 2 + i, None]
        assert torch.equal(biases[:, i, 2 + i :], own.expand(-1, 4 - i))


@EVERY_BIASING
def test_cross_attention_is_refused_with_the_reason(position: Position) -> None:
    with pytest.raises(Unsupported, match=f"{position.name} .* cross attention"):
        position.bias(spec_of(cross_attention=True))
