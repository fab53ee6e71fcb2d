"""Lines of attention of a trained model, and the biases that keep a new model on them.

Shapes: n contexts, H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lgbench import Batch, UsageError
from lgbench.experiment.experiment import Experiment
from lgbench.internals.parts import PartsSight
from lgbench.training.models import Models

DIGITS = 4
"""Significant digits of a bias in a file."""
ROUNDING = 1e-3
"""Largest difference between an output and weights times values."""

Head = Mapping[str, Mapping[str, float]]
"""Biases of one head by line, under "diagonals" and "columns"."""


@torch.no_grad()
def attention(experiment: Experiment, models: Models, weights: str, inputs: Tensor) -> list[Tensor]:
    """Attention weights (n, H, Q, K) of each layer of a trained model. Raises UsageError for a model without any."""
    found: list[Tensor] = []

    def see(module: nn.Module, given: tuple[Tensor, ...], named: Mapping[str, Any], answer: Tensor) -> None:
        q, k, v, bias = given
        identity = torch.eye(k.shape[-2]).to(v).expand(*k.shape[:2], -1, -1)
        shares = module.forward(q, k, identity, bias, **named)  # a call would run this hook again
        if shares.shape[-2] != answer.shape[-2] or not torch.allclose(shares @ v, answer, atol=ROUNDING):
            raise UsageError(f"{experiment.entry} has no weights of attention: the output is not linear in the values")
        found.append(shares.cpu())

    sight = PartsSight(experiment.parts, lambda parts: replace(experiment, parts=parts).build(), inputs.device, ROUNDING)
    for module in sight.attentions:
        module.register_forward_hook(see, with_kwargs=True)
    models.on(sight.model.eval()).model(weights, 0)(inputs)
    if not found:
        raise UsageError(f"{experiment.entry} has no attention: calibrate with a run of a transformer")
    return found


def heads_of(weights: Tensor, batch: Batch, threshold: float) -> list[Head]:
    """Biases of each head, from its weights (n, H, Q, K) at the queries whose answers count.

    The bias of a line is its share of their attention. Lines stay whose share is at least the mean of all lines plus
    `threshold` standard deviations.
    """
    n, _, queries, keys = weights.shape
    at = torch.arange(keys).expand(n, -1) if batch.positions is None else batch.positions
    counts = torch.ones(n, queries, dtype=torch.bool) if batch.weights is None else batch.weights[:, -queries:] > 0
    pairs = counts[..., None] & torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    parts = weights.movedim(1, -1)[pairs] / counts.sum()  # (pairs, H): parts of the attention of all queries
    apart = at[:, keys - queries :, None] - at[:, None]
    lines = {"diagonals": apart, "columns": at[:, None].expand_as(apart)}
    shares = {kind: shares_of(line[pairs], parts) for kind, line in lines.items()}
    every = torch.cat([own for _, own in shares.values()])
    least = (every.mean(0) + threshold * every.std(0, correction=0)).tolist()
    heads: list[dict[str, dict[str, float]]] = [{} for _ in least]
    for kind, (names, own) in shares.items():
        for head, limit, share_of_each in zip(heads, least, own.T.tolist(), strict=True):
            kept = {str(name): rounded(share) for name, share in zip(names, share_of_each, strict=True) if share >= limit}
            head.update({kind: kept} if kept else {})
    return [*heads]


def shares_of(lines: Tensor, parts: Tensor) -> tuple[list[int], Tensor]:
    """Lines (L), and their shares (L, H), from pairs with their line (N,) and their parts (N, H)."""
    names, line_of = torch.unique(lines, return_inverse=True)
    return names.tolist(), parts.new_zeros(len(names), parts.shape[1]).index_add_(0, line_of, parts)


def rounded(share: float) -> float:
    return float(f"{share:.{DIGITS}g}")
