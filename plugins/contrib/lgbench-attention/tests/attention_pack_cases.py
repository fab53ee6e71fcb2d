"""Inputs for the tests of this pack."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Need
from lgbench.attending import needed_inputs
from lgbench_attention import ATTENTIONS

BY_NAME = {attention.name: attention for attention in ATTENTIONS}


class Inputs(NamedTuple):
    """The arguments of an attention's module, and the needs of the attention."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    query_input: Tensor
    needs: frozenset[Need]


def call(module: Callable[..., Tensor], given: Inputs) -> Tensor:
    """The output of the module. No attention of this pack needs the input at the keys."""
    needed = needed_inputs(given.needs - {Need.KEY_INPUT}, given.query_input, given.query_input)
    return module(given.q, given.k, given.v, given.bias, **needed)


def spec_of(
    heads: int = 2,
    head_dim: int = 3,
    train_keys: int = 4,
    layer: int = 2,
    cross_attention: bool = False,
    unscaled: bool = False,
) -> AttentionSpec:
    return AttentionSpec(layer, 12, heads * head_dim, heads, train_keys, cross_attention=cross_attention, unscaled=unscaled)


def inputs(
    attention: Attention,
    spec: AttentionSpec,
    queries: int,
    keys: int,
    bias: str = "none",
    batch: int = 2,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Inputs:
    """`bias` is one of "none", "of all contexts", "of each context"."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    rows = keys if Need.ALL_QUERIES in attention.needs else queries
    biases = {"none": (), "of all contexts": (spec.heads, rows, keys), "of each context": (batch, spec.heads, rows, keys)}
    return Inputs(
        q=scale * normal(batch, spec.heads, rows, spec.head_dim),
        k=normal(batch, spec.heads, keys, spec.head_dim),
        v=normal(batch, spec.heads, keys, spec.head_dim),
        query_input=normal(batch, queries, spec.width),
        bias=normal(*biases[bias]) if bias != "none" else None,
        needs=attention.needs,
    )


def built(attention: Attention, spec: AttentionSpec, dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    """The module with weights unlike its initial ones, so that each of them counts."""
    module = attention.build(spec).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=generator, dtype=dtype))
    return module
