"""Entmax in a form that torch.func takes, against the package that it comes from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attention_pack_cases import BY_NAME, call, inputs, spec_of
from entmax import entmax15, sparsemax
from torch import Tensor
from torch.func import grad, vmap

from lgbench_attention.sparse import entmax

mappings = pytest.mark.parametrize(("alpha", "package"), [(1.5, entmax15), (2.0, sparsemax)], ids=["entmax15", "sparsemax"])
Package = Callable[..., Tensor]


def logits(*shape: int, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def gradient(mapping: Callable[[Tensor], Tensor], z: Tensor, direction: Tensor) -> Tensor:
    z = z.clone().requires_grad_()
    (mapping(z) * direction).sum().backward()
    assert z.grad is not None
    return z.grad


@mappings
def test_gradients_are_those_of_the_package(alpha: float, package: Package) -> None:
    z, direction = logits(3, 4, 9), logits(3, 4, 9).flip(0)
    torch.testing.assert_close(
        gradient(lambda x: entmax(x, alpha), z, direction), gradient(lambda x: package(x, dim=-1), z, direction)
    )


@mappings
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_a_batch_may_stand_in_any_dimension(alpha: float, package: Package, dim: int) -> None:
    z = logits(3, 4, 5)
    found = vmap(lambda x: entmax(x, alpha), in_dims=dim, out_dims=dim)(z)
    expected = torch.stack([package(x, dim=-1) for x in z.unbind(dim)], dim)
    torch.testing.assert_close(found, expected)


@mappings
def test_batches_may_be_nested_around_a_gradient(alpha: float, package: Package) -> None:
    z = logits(2, 3, 4, 5)
    found = vmap(vmap(grad(lambda x: entmax(x, alpha).square().sum())))(z)
    z = z.requires_grad_()
    package(z, dim=-1).square().sum().backward()
    torch.testing.assert_close(found, z.grad)


@mappings
def test_masked_logits_get_exactly_nothing_and_pass_no_gradient(alpha: float, package: Package) -> None:
    z = logits(6, 6).float()
    masked = z.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
    weights = entmax(masked, alpha)
    assert (weights.triu(1) == 0).all()
    for row in range(6):
        torch.testing.assert_close(weights[row, : row + 1], package(z[row, : row + 1], dim=-1))
    change = gradient(lambda x: entmax(x, alpha), masked, z.flip(0))
    assert change.isfinite().all()
    assert (change.triu(1) == 0).all()


@mappings
@pytest.mark.parametrize("keys", [1000, 16385])
def test_float32_is_enough_for_long_inputs(alpha: float, package: Package, keys: int) -> None:
    z = torch.where(torch.arange(keys) < 3, 0.0, -1.3)
    for given in z, z + logits(keys).float(), logits(keys, scale=100.0).float():
        torch.testing.assert_close(entmax(given, alpha).double(), package(given.double(), dim=-1), rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("name", ["entmax15", "sparsemax", "asentmax"])
def test_far_keys_get_exactly_nothing(name: str) -> None:
    spec = spec_of(heads=1, head_dim=8)
    given = inputs(BY_NAME[name], spec, 1, 8, batch=1, scale=0.0)
    bias = torch.tensor([[[5.0, 0, 0, 0, 5.0, 0, 0, 0]]], dtype=torch.float64)
    identity = torch.eye(8, dtype=torch.float64)[None, None]
    weights = call(BY_NAME[name].build(spec).double(), given._replace(v=identity, bias=bias))
    torch.testing.assert_close(weights.flatten(), bias.flatten() / 10)
    assert (weights == 0).sum() == 6
