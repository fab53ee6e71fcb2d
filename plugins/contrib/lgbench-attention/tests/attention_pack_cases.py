"""Inputs for the tests of this pack."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lgbench import Attention, Place
from lgbench_attention import ATTENTIONS

BY_NAME = {attention.name: attention for attention in ATTENTIONS}


class Inputs(NamedTuple):
    """What an attention's module is called with."""

    q: Tensor
    k: Tensor
    v: Tensor
    asking: Tensor
    bias: Tensor | None


def place(
    heads: int = 2, head_dim: int = 3, train_keys: int = 4, layer: int = 2, crossing: bool = False, plain: bool = False
) -> Place:
    return Place(layer, heads * head_dim, heads, train_keys, crossing=crossing, plain=plain)


def inputs(
    attention: Attention,
    where: Place,
    queries: int,
    keys: int,
    biased: bool = False,
    batch: int = 2,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    rows = keys if attention.every_query else queries
    return Inputs(
        scale * normal(batch, where.heads, rows, where.head_dim),
        normal(batch, where.heads, keys, where.head_dim),
        normal(batch, where.heads, keys, where.head_dim),
        normal(batch, queries, where.width),
        normal(where.heads, rows, keys) if biased else None,
    )


def built(attention: Attention, where: Place, dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    """The module with weights unlike its initial ones, so that each of them counts."""
    module = attention.build(where).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=generator, dtype=dtype))
    return module
