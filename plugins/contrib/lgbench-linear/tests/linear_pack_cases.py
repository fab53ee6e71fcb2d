"""Inputs for the tests of this pack."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench_linear import ATTENTIONS

BY_NAME: dict[str, Attention] = {attention.name: attention for attention in ATTENTIONS}


def spec_of(heads: int = 2, head_dim: int = 3) -> AttentionSpec:
    return AttentionSpec(2, 3, heads * head_dim, heads, 17)


def built(attention: Attention, spec: AttentionSpec, dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    """The module with weights unlike its initial ones, so that each of them counts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = attention.build(spec)
    assert isinstance(module, nn.Module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=generator))
    return module.to(dtype)


def inputs(
    spec: AttentionSpec, positions: int, batch: int = 2, dtype: torch.dtype = torch.float64, seed: int = 0
) -> list[Tensor]:
    """q, k, v (B, H, T, D) and x (B, T, W)."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, spec.heads, positions, spec.head_dim)] * 3 + [(batch, positions, spec.width)]
    return [torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


def call(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, x: Tensor, asked: int | None = None) -> Tensor:
    """What the last `asked` positions take, by default all."""
    mixed: Tensor = module(q, k, v, None, query_input=x[:, -(asked or x.shape[1]) :], key_input=x)
    return mixed
