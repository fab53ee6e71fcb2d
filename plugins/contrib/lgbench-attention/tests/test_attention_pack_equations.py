"""Every attention against its published equation, written with loops over numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from attention_pack_cases import BY_NAME, Inputs, built, call, inputs, spec_of
from torch import Tensor, nn

from lgbench import AttentionSpec, Unsupported
from lgbench_attention.scaled import AdaptiveTemperatureAttention

Row = list[float]
SHAPES = [(5, 5), (1, 5), (3, 5), (1, 1)]
"""Queries and keys."""


def visible_logits(given: Inputs, spec: AttentionSpec, b: int, h: int, i: int, features: list[int] | None = None) -> Row:
    """z of query i of those in q, over the keys that it sees."""
    features = list(range(spec.head_dim)) if features is None else features
    q, k = given.q[b, h, i, features].tolist(), given.k[b, h][:, features].tolist()
    last, divisor = len(k) - given.q.shape[2] + i, 1 if spec.unscaled else math.sqrt(len(q))
    found = [sum(x * y for x, y in zip(q, k[j], strict=True)) / divisor for j in range(last + 1)]
    if given.bias is None:
        return found
    bias = given.bias if given.bias.ndim == 3 else given.bias[b]
    return [z + bias[h, i, j].item() for j, z in enumerate(found)]


def mixed(weights: Row, values: Tensor) -> Row:
    return [sum(w * values[j, d].item() for j, w in enumerate(weights)) for d in range(values.shape[1])]


def softmax(z: Row) -> Row:
    total = sum(math.exp(x - max(z)) for x in z)
    return [math.exp(x - max(z)) / total for x in z]


def entmax(z: Row, alpha: float) -> Row:
    """By bisection for the threshold at which the weights sum to 1."""

    def weights(tau: float) -> Row:
        return [max((alpha - 1) * x - tau, 0.0) ** (1 / (alpha - 1)) for x in z]

    low, high = (alpha - 1) * max(z) - 1, (alpha - 1) * max(z)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(weights(middle)) >= 1 else (low, middle)
    return weights(low)


def scaled(z: Row, factor: float) -> Row:
    return [factor * x for x in z]


def adaptive_temperature(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    entropy = -sum(p * math.log(p) for p in softmax(z))
    polynomial = -0.037 * entropy**4 + 0.481 * entropy**3 - 2.3 * entropy**2 + 4.917 * entropy - 1.791
    return softmax(scaled(z, max(1.0, polynomial) if entropy > 0.5 else 1.0))


def ssmax(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    return softmax(scaled(z, module.s[h].item() * math.log(len(z))))


def log_length(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    return softmax(scaled(z, max(1.0, math.log(len(z)) / math.log(spec.train_keys))))


def entmax15(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    return entmax(z, 1.5)


def sparsemax(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    return entmax(z, 2.0)


def asentmax(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    if len(z) == 1:
        return [1.0]
    beta = math.log1p(math.exp(sum(a * b for a, b in zip(module.beta.weight[h].tolist(), x, strict=True))))
    gamma = 2 * math.tanh(sum(a * b for a, b in zip(module.gamma.weight[h].tolist(), x, strict=True)))
    return entmax(scaled(z, 1 + beta * math.log(len(z)) ** gamma), 1.5)


def sigmoid(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    return [1 / (1 + math.exp(-(logit - math.log(len(z))))) for logit in z]


def stick_breaking(z: Row, module: nn.Module, spec: AttentionSpec, h: int, x: Row) -> Row:
    share = [1 / (1 + math.exp(-logit)) for logit in z]
    past = len(z) if spec.cross_attention else len(z) - 1
    return [share[j] * math.prod(1 - share[k] for k in range(j + 1, past)) for j in range(past)]


Rule = Callable[[Row, nn.Module, AttentionSpec, int, Row], Row]
RULES: dict[str, Rule] = {
    "adaptive-temperature": adaptive_temperature,
    "ssmax": ssmax,
    "log-length": log_length,
    "entmax15": entmax15,
    "sparsemax": sparsemax,
    "asentmax": asentmax,
    "sigmoid": sigmoid,
    "stick-breaking": stick_breaking,
}


def published(name: str, module: nn.Module, spec: AttentionSpec, given: Inputs) -> Tensor:
    if name == "differential":
        return differential(module, spec, given)
    if name == "nap":
        return normalized_pooling(module, spec, given)
    if name == "selective":
        return selective(spec, given)
    return by_row(lambda b, h, i, z: RULES[name](z, module, spec, h, given.query_input[b, i].tolist()), spec, given)


def by_row(weights: Callable[[int, int, int, Row], Row], spec: AttentionSpec, given: Inputs) -> Tensor:
    batch, heads, queries, _ = given.q.shape
    return torch.tensor(
        [
            [
                [mixed(weights(b, h, i, visible_logits(given, spec, b, h, i)), given.v[b, h]) for i in range(queries)]
                for h in range(heads)
            ]
            for b in range(batch)
        ],
        dtype=torch.float64,
    )


def differential(module: nn.Module, spec: AttentionSpec, given: Inputs) -> Tensor:
    halves = [[feature for feature in range(spec.head_dim) if feature % 4 // 2 == half] for half in (0, 1)]
    lambda_0 = 0.8 - 0.6 * math.exp(-0.3 * (spec.layer - 1))
    first = sum(a * b for a, b in zip(module.lambda_q1.tolist(), module.lambda_k1.tolist(), strict=True))
    second = sum(a * b for a, b in zip(module.lambda_q2.tolist(), module.lambda_k2.tolist(), strict=True))
    lam = math.exp(first) - math.exp(second) + lambda_0

    def weights(b: int, h: int, i: int, z: Row) -> Row:
        one, two = (softmax(visible_logits(given, spec, b, h, i, half)) for half in halves)
        return [x - lam * y for x, y in zip(one, two, strict=True)]

    gain = module.norm.weight.tolist()

    def normed(head: Row) -> Row:
        rms = math.sqrt(sum(x * x for x in head) / len(head) + 1e-5)
        return [(1 - lambda_0) * g * x / rms for g, x in zip(gain, head, strict=True)]

    taken = by_row(weights, spec, given)
    return torch.tensor([[[normed(i) for i in h] for h in b] for b in taken.tolist()], dtype=torch.float64)


def normalized_pooling(module: nn.Module, spec: AttentionSpec, given: Inputs) -> Tensor:
    def weights(b: int, h: int, i: int, z: Row) -> Row:
        mean = sum(z) / len(z)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in z) / len(z) + 1e-6)
        return [module.gain[h].item() * (x - mean) / deviation + module.shift[h].item() for x in z]

    taken = by_row(weights, spec, given)
    found = torch.empty_like(taken)
    gain, shift = module.norm.weight.tolist(), module.norm.bias.tolist()
    batch, heads, queries, features = taken.shape
    for b in range(batch):
        for i in range(queries):
            row = [x for h in range(heads) for x in taken[b, h, i].tolist()]
            mean = sum(row) / len(row)
            deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-5)
            for column, x in enumerate(row):
                h, d = divmod(column, features)
                found[b, h, i, d] = gain[column] * (x - mean) / deviation + shift[column]
    return found


def selective(spec: AttentionSpec, given: Inputs) -> Tensor:
    """Selection by head 0: S_ij = relu(z_ij) for 0 < j < i, F_ij = the sum of S_i'j over i' < i."""

    def weights(b: int, h: int, i: int, z: Row) -> Row:
        gates = [visible_logits(given, spec, b, 0, earlier) for earlier in range(i)]
        return softmax([x - sum(max(gates[e][j], 0.0) for e in range(j + 1, i)) if j else x for j, x in enumerate(z)])

    return by_row(weights, spec, given)[:, :, -given.query_input.shape[1] :]


@pytest.mark.parametrize("unscaled", [False, True], ids=["divided", "unscaled"])
@pytest.mark.parametrize("bias", ["none", "of all contexts", "of each context"])
@pytest.mark.parametrize(("queries", "keys"), SHAPES)
@pytest.mark.parametrize("name", BY_NAME)
def test_it_is_as_published(name: str, queries: int, keys: int, bias: str, unscaled: bool) -> None:
    spec = spec_of(heads=2, head_dim=3, train_keys=3, unscaled=unscaled)
    given = inputs(BY_NAME[name], spec, queries, keys, bias, scale=2.0)
    module = built(BY_NAME[name], spec).eval()
    expected = published(name, module, spec, given)
    assert expected.shape == (2, 2, queries, 3)
    torch.testing.assert_close(call(module, given), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "selective"])
def test_it_is_as_published_in_cross_attention(name: str, queries: int) -> None:
    spec = spec_of(heads=1, head_dim=4, train_keys=9, cross_attention=True)
    given = inputs(BY_NAME[name], spec, queries, 6)
    module = built(BY_NAME[name], spec).eval()
    torch.testing.assert_close(call(module, given), published(name, module, spec, given), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["adaptive-temperature", "log-length"])
def test_training_within_the_training_length_is_that_of_softmax(name: str) -> None:
    spec = spec_of(train_keys=7)
    given = inputs(BY_NAME[name], spec, 7, 7, scale=3.0)
    expected = F.scaled_dot_product_attention(given.q, given.k, given.v, is_causal=True)
    torch.testing.assert_close(call(BY_NAME[name].build(spec).train(), given), expected)


@pytest.mark.parametrize("train_keys", [2, 3, 8])
def test_ssmax_begins_as_softmax_at_the_training_length(train_keys: int) -> None:
    spec = spec_of(train_keys=train_keys)
    given = inputs(BY_NAME["ssmax"], spec, 1, train_keys)
    expected = F.scaled_dot_product_attention(given.q, given.k, given.v)
    torch.testing.assert_close(call(BY_NAME["ssmax"].build(spec).double(), given), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["ssmax", "log-length"])
def test_training_on_a_single_position_is_possible(name: str) -> None:
    spec = spec_of(train_keys=1)
    assert call(BY_NAME[name].build(spec), inputs(BY_NAME[name], spec, 5, 5, dtype=torch.float32)).isfinite().all()


@pytest.mark.parametrize(
    ("n", "b"), [(1, 1), (4, 1.750), (8, 2.121), (16, 2.227), (64, 2.408), (256, 1.783), (512, 1), (16384, 1)]
)
def test_the_temperature_of_flat_weights_is_as_published(n: int, b: float) -> None:
    assert AdaptiveTemperatureAttention.factor(torch.tensor(math.log(n))).item() == pytest.approx(b, abs=6e-4)


def test_the_polynomial_of_the_temperature_has_its_highest_power_first() -> None:
    entropy = math.log(16)
    ascending = sum(c * entropy**power for power, c in enumerate([-0.037, 0.481, -2.3, 4.917, -1.791]))
    assert abs(AdaptiveTemperatureAttention.factor(torch.tensor(entropy)).item() - max(1.0, ascending)) > 1


def test_adaptive_temperature_sharpens_in_evaluation_only() -> None:
    spec = spec_of(heads=1)
    given = inputs(BY_NAME["adaptive-temperature"], spec, 1, 16, scale=0.1)
    module = BY_NAME["adaptive-temperature"].build(spec)
    plain = F.scaled_dot_product_attention(given.q, given.k, given.v)
    torch.testing.assert_close(call(module.train(), given), plain)
    sharper = F.scaled_dot_product_attention(2.227 * given.q, given.k, given.v)
    torch.testing.assert_close(call(module.eval(), given), sharper, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("layer", [1, 2, 12])
def test_heads_of_differential_attention_begin_with_the_published_size(layer: int) -> None:
    spec = spec_of(layer=layer, head_dim=7)
    out = call(BY_NAME["differential"].build(spec), inputs(BY_NAME["differential"], spec, 4, 4, dtype=torch.float32))
    size = {1: 0.8, 2: 0.2 + 0.6 * math.exp(-0.3), 12: 0.2 + 0.6 * math.exp(-3.3)}[layer]
    torch.testing.assert_close(out.square().mean(-1).sqrt(), torch.full((2, 2, 4), size), rtol=1e-2, atol=0.0)


@pytest.mark.parametrize("head_dim", [1, 2])
def test_heads_of_one_pair_or_less_cannot_be_halved(head_dim: int) -> None:
    with pytest.raises(Unsupported, match=f"at least 3, got {head_dim}"):
        BY_NAME["differential"].build(spec_of(head_dim=head_dim))


@pytest.mark.parametrize(("head_dim", "first", "second"), [(3, 2, 1), (5, 3, 2), (6, 4, 2), (8, 4, 4), (63, 32, 31)])
def test_halves_hold_whole_pairs(head_dim: int, first: int, second: int) -> None:
    in_first = BY_NAME["differential"].build(spec_of(head_dim=head_dim)).first_half.tolist()
    assert (in_first.count(1), in_first.count(0)) == (first, second)
    assert all(in_first[feature] == in_first[feature + 1] for feature in range(0, head_dim - 1, 2))


def test_normalized_weights_begin_with_gain_one_and_sum_to_zero() -> None:
    spec = spec_of(heads=1, head_dim=4)
    module = BY_NAME["nap"].build(spec).double()
    given = inputs(BY_NAME["nap"], spec, 1, 50)
    torch.testing.assert_close(call(module, given._replace(v=given.v + 100.0)), call(module, given))
