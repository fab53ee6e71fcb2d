from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lgbench import AttentionSpec, Unsupported
from lgbench_recurrent import lgbench_attentions


def build(heads: int = 2, head_dim: int = 3, seed: int = 0) -> nn.Module:
    (attention,) = lgbench_attentions()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return attention.build(AttentionSpec(layer=1, layers=1, width=heads * head_dim, heads=heads, train_keys=17))


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def queries_keys_values(batch: int = 2, heads: int = 2, positions: int = 9, dim: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = normal(3, batch, heads, positions, dim)
    return q, k, v


def attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mixed: Tensor = module(q, k, v, None)
    return mixed


def recurrent(weight: Tensor, bias: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head of one input, (T, D) each, as the recurrent network of the paper."""
    state, total = torch.zeros(len(weight), v.shape[1], dtype=v.dtype), torch.zeros(len(weight), dtype=v.dtype)
    outputs = []
    for query, key, value in zip(q, k, v, strict=True):
        features = (weight @ key + bias).clamp(min=0)
        state = state + torch.outer(features, value)
        total = total + features
        asked = (weight @ query + bias).clamp(min=0)
        outputs.append(asked @ state / (asked @ total))
    return torch.stack(outputs)


@pytest.mark.parametrize(("heads", "dim"), [(1, 5), (2, 3), (3, 4)])
def test_it_is_the_recurrent_network_of_the_paper(heads: int, dim: int) -> None:
    module = build(heads, dim).double()
    weights = dict(module.named_parameters())
    nn.init.uniform_(weights["features.bias"], 0.1, 0.5, generator=torch.Generator().manual_seed(3))  # no empty total
    q, k, v = queries_keys_values(heads=heads, dim=dim)
    mixed = attend(module, q / 4, k / 4, v)
    for head in range(heads):
        own = weights["features.weight"][head], weights["features.bias"][head]
        for each in range(2):
            at = each, head
            torch.testing.assert_close(mixed[at], recurrent(*own, q[at] / 4, k[at] / 4, v[at]))


def test_a_query_without_a_feature_in_common_with_any_key_takes_nothing() -> None:
    module = build()
    nn.init.constant_(module.get_parameter("features.bias"), -100.0)
    q, k, v = (x.float().requires_grad_() for x in queries_keys_values())
    mixed = attend(module, q, k, v)
    assert (mixed == 0).all()
    for gradient in torch.autograd.grad(mixed.sum(), [q, k, v, *module.parameters()]):
        assert (gradient == 0).all()


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e6])
def test_queries_and_keys_of_any_size_give_finite_results(scale: float) -> None:
    module = build()
    q, k, v = (x.float() for x in queries_keys_values())
    mixed = attend(module, q * scale, k * scale, v)
    assert mixed.isfinite().all()
    for gradient in torch.autograd.grad(mixed.sum(), list(module.parameters())):
        assert gradient.isfinite().all()


def test_features_start_as_linear_layers_do() -> None:
    module = build(heads=2, head_dim=16)
    for name, shape in (("features.weight", (2, 16, 16)), ("features.bias", (2, 16))):
        parameter = module.get_parameter(name)
        assert parameter.shape == shape
        assert 0.2 < parameter.abs().max() <= 0.25


def test_one_query_may_see_many_thousands_of_keys() -> None:
    module = build(heads=1, head_dim=63)
    q, k, v = (normal(2, 1, positions, 63).float() for positions in (1, 16385, 16385))
    with torch.no_grad():
        mixed = attend(module, q, k, v)
    assert mixed.shape == (2, 1, 1, 63)
    assert mixed.isfinite().all()


def test_a_bias_on_logits_is_refused_with_the_reason() -> None:
    with pytest.raises(Unsupported, match="t2r has no logits .* bias"):
        lgbench_attentions()[0].build(AttentionSpec(1, 1, 8, 2, 17, has_bias=True))
