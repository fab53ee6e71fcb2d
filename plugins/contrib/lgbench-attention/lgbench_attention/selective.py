"""Selective attention: a token can take others out of the sight of later queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, Place, Unsupported
from lgbench.attending import logits

BLOCK = 2**22
"""Logits that are made at a time, which fit into a cache. One context of 16,000 positions has 64 times as many."""


class SelectiveAttention(nn.Module):
    """softmax(z - F) v with F_ij the sum of relu(z_i'j of head 0) over the queries i' before i, in blocks of queries."""

    def __init__(self, scale: float, block: int = BLOCK) -> None:
        super().__init__()
        self.scale = scale
        self.block = block

    def forward(self, q: Tensor, k: Tensor, v: Tensor, asking: Tensor, bias: Tensor | None) -> Tensor:
        """q, k and v (B, H, K, D), asking (B, Q, width), bias (H, K, K) or broadcasting to it -> (B, H, Q, D)."""
        (batch, heads, keys, _), wanted = k.shape, asking.shape[-2]
        bias = None if bias is None else bias.expand(heads, keys, keys)
        rows = self.block // (batch * keys)
        masked = q.new_zeros(batch, 1, keys)  # F of the first query of the next block
        for start, stop in blocks(0, keys - wanted, rows):
            # Of the keys after them these queries select none.
            gate = self.logits_of(q, k[:, :, :stop], bias, 1, start, stop)[:, 0]
            masked = masked + F.pad(selected(gate, start).sum(-2, keepdim=True), (0, keys - stop))
        taken = []
        for start, stop in blocks(keys - wanted, keys, rows // heads):
            scores = self.logits_of(q, k, bias, heads, start, stop)
            masking = torch.cat([masked, selected(scores[:, 0], start)], -2).cumsum(-2)
            masked = masking[:, -1:]
            unseen = torch.ones(stop - start, keys, dtype=torch.bool, device=q.device).triu(start + 1)
            taken.append((scores - masking[:, None, :-1]).masked_fill(unseen, -torch.inf).softmax(-1) @ v)
        return torch.cat(taken, -2)

    def logits_of(self, q: Tensor, k: Tensor, bias: Tensor | None, heads: int, start: int, stop: int) -> Tensor:
        """The logits of the queries start to stop in the first `heads` heads, (B, heads, stop - start, K)."""
        own = None if bias is None else bias[:heads, start:stop, : k.shape[-2]]
        return logits(q[:, :heads, start:stop], k[:, :heads], own, self.scale)


def blocks(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Where consecutive blocks of `size` start and stop, the last of which may be shorter."""
    size = max(size, 1)
    return ((first, min(first + size, stop)) for first in range(start, stop, size))


def selected(gate: Tensor, start: int) -> Tensor:
    """How much the queries start, start + 1, ... each add to the masking of later ones, (B, rows, K) as gate."""
    return F.pad(gate[..., 1:].relu().tril(start - 2), (1, 0))


@final
class Selective(Attention):
    """Softmax attention less what earlier queries selected for masking: the relu of the logits of head 0, summed over them.

    It is subtracted from the logits of all heads, no token masks itself, and the first is never masked (arXiv 2410.02703). A
    token's selection acts on the queries after it, not on its own, as in x-transformers. The logits of head 0 include the
    position code's bias, which is our choice. Blocks bound what long inputs take of memory in testing, where no position code
    makes a bias.
    """

    name = "selective"
    every_query = True

    def build(self, place: Place) -> nn.Module:
        if place.crossing:
            raise Unsupported(
                "selective attention counts on every key having a query too, and here queries come from elsewhere"
            )
        return SelectiveAttention(place.scale)
