"""One record of insides from those of several batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lgbench.contracts import AttentionInside, Insides, SublayerInside


def joined(parts: Sequence[Insides], chosen: Tensor) -> Insides:
    """These contexts of all parts."""
    if len(parts) == 1 and len(chosen) == len(parts[0].logits):
        return parts[0]

    def join(tensors: Sequence[Tensor | None]) -> Tensor | None:
        known = [each for each in tensors if each is not None]
        return torch.cat(known)[chosen] if len(known) == len(tensors) else None

    def whole(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(tensors))[chosen]

    return Insides(
        length=parts[0].length,
        inputs=whole([part.inputs for part in parts]),
        logits=whole([part.logits for part in parts]),
        distribution=join([part.distribution for part in parts]),
        sources=join([part.sources for part in parts]),
        attentions=tuple(
            AttentionInside(own[0].layer, whole([each.output for each in own]), join([each.weights for each in own]))
            for own in zip(*(part.attentions for part in parts), strict=True)
        ),
        sublayers=tuple(
            SublayerInside(
                own[0].role,
                own[0].layer,
                join([each.before for each in own]),
                whole([each.after for each in own]),
                join([each.norm_input for each in own]),
            )
            for own in zip(*(part.sublayers for part in parts), strict=True)
        ),
        final=join([part.final for part in parts]),
    )
