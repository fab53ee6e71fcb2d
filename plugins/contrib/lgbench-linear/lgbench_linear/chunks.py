"""Inputs in chunks of positions: a recurrence is computed at once within a chunk, and its state goes from chunk to chunk.

So time and memory grow linearly with the number of positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

POSITIONS = 64
"""Of a chunk. The training inputs of most tasks are one chunk, in which no state is needed."""


def in_chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors, (B, H, T, ...) or a multiple of T each, in chunks of positions. The last one may be shorter.

    >>> [[part.shape[2] for part in chunk] for chunk in in_chunks(torch.ones(1, 1, 70, 2), torch.ones(1, 1, 140))]
    [[64, 128], [6, 12]]
    """
    total = tensors[0].shape[2]
    if total <= POSITIONS:  # not split into one part and joined again: that copies, and torch's compiler stumbles over it
        return iter([tensors])
    return zip(*(torch.split(tensor, POSITIONS * tensor.shape[2] // total, 2) for tensor in tensors), strict=True)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The whole from what became of the chunks: (B, H, ., ...) each -> (B, H, T, ...)."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), 2)


def decays(later: Tensor, earlier: Tensor, seen: Tensor) -> Tensor:
    """exp(later_i - earlier_j) where `seen`, (I, J), else 0: from (..., I) and (..., J) to (..., I, J)."""
    # Masked before exp: what is not seen would overflow, and have a gradient of infinity times zero.
    return (later.unsqueeze(-1) - earlier.unsqueeze(-2)).masked_fill(~seen, -torch.inf).exp()
