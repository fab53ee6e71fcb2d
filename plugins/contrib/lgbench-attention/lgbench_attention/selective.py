"""Selective attention: a token can take others out of the sight of later queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Need, Unsupported
from lgbench.attending import logits

BLOCK = 2**22
"""Logits that are made at a time, which fit into a cache. One context of 16,000 positions has 64 times as many."""


class SelectiveAttention(nn.Module):
    """softmax(z - F) v with F_ij the sum of relu(z_i'j of head 0) over the queries i' before i, in blocks of queries."""

    def __init__(self, scale: float, block: int = BLOCK) -> None:
        super().__init__()
        self.scale = scale
        self.block = block

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, query_input: Tensor) -> Tensor:
        """q, k and v (B, H, K, D), bias (B, H, K, K) or broadcasting to it, query_input (B, Q, W) -> (B, H, Q, D)."""
        (batch, heads, keys, _), queries = k.shape, query_input.shape[-2]
        bias = None if bias is None else bias.expand(batch, heads, keys, keys)
        rows = self.block // (batch * keys)
        masked = q.new_zeros(batch, 1, keys)  # F of the first query of the next block
        for start, stop in blocks(0, keys - queries, rows):
            # These queries select no key after them.
            gate = self.logits_of(q, k[:, :, :stop], bias, 1, start, stop)[:, 0]
            masked = masked + F.pad(selected(gate, start).sum(-2, keepdim=True), (0, keys - stop))
        taken = []
        for start, stop in blocks(keys - queries, keys, rows // heads):
            scores = self.logits_of(q, k, bias, heads, start, stop)
            masking = torch.cat([masked, selected(scores[:, 0], start)], -2).cumsum(-2)
            masked = masking[:, -1:]
            unseen = torch.ones(stop - start, keys, dtype=torch.bool, device=q.device).triu(start + 1)
            taken.append((scores - masking[:, None, :-1]).masked_fill(unseen, -torch.inf).softmax(-1) @ v)
        return torch.cat(taken, -2)

    def logits_of(self, q: Tensor, k: Tensor, bias: Tensor | None, heads: int, start: int, stop: int) -> Tensor:
        """The logits of the queries start to stop in the first `heads` heads, (B, heads, stop - start, K)."""
        own = None if bias is None else bias[:, :heads, start:stop, : k.shape[-2]]
        return logits(q[:, :heads, start:stop], k[:, :heads], own, self.scale)


def blocks(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Where consecutive blocks of `size` start and stop. The last one may be shorter."""
    size = max(size, 1)
    return ((first, min(first + size, stop)) for first in range(start, stop, size))


def selected(gate: Tensor, start: int) -> Tensor:
    """How much each of the queries start, start + 1, ... adds to the masking of later queries, (B, rows, K) as gate."""
    return F.pad(gate[..., 1:].relu().tril(start - 2), (1, 0))


@final
class Selective(Attention):
    """Softmax attention whose logits earlier queries reduce by the relu of their logits in head 0 (arXiv 2410.02703).

    softmax(z_ij - F_ij) v, with F_ij the sum of relu(z_kj of head 0) over the queries k before i, in all heads.

    No token masks itself, and the first token is never masked. A token's selection acts on later queries only, as in
    x-transformers. Our choice: the logits of head 0 include the position code's bias. Blocks of queries bound the memory of
    long inputs in testing, unless a position code makes a bias of all positions.
    """

    name = "selective"
    needs = frozenset({Need.ALL_QUERIES, Need.QUERY_INPUT})  # the second only says how many of the queries are asked

    def build(self, spec: AttentionSpec) -> SelectiveAttention:
        if spec.cross_attention:
            raise Unsupported(
                "selective attention needs a query at the position of every key, and cross attention has none there"
            )
        return SelectiveAttention(spec.scale)
