"""Lines of attention of a trained model, and the biases that keep a new model on them.

Shapes: n contexts, H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench import Batch, UsageError
from lgbench.experiment.experiment import Experiment
from lgbench.internals.sight import TOLERANCES, PartsSight
from lgbench.training.models import Models

DIGITS = 4
"""Significant digits of a bias in a file."""

Head = Mapping[str, Mapping[str, float]]
"""Biases of one head by line, under "diagonals" and "columns"."""


@torch.no_grad()
def attention(experiment: Experiment, models: Models, weights: str, inputs: Tensor) -> list[Tensor]:
    """Attention weights (n, H, Q, K) of each layer of a trained model. Raises UsageError for a model without any."""
    where, tolerance = torch.device("cpu"), TOLERANCES[experiment.record.precision]
    sight = PartsSight(experiment.parts, lambda parts: replace(experiment, parts=parts).build(), where, tolerance)
    places = range(inputs.shape[1])
    sight.begin(places)
    with sight.watching():
        models.on(sight.model.eval()).model(weights, 0)(inputs)
    rows: dict[int, list[Tensor]] = defaultdict(list)
    for place in reversed(places):  # numbers of positions after the query
        for each in sight.at(place).attentions:
            if each.weights is None:
                raise UsageError(f"{experiment.entry} has no weights of attention: its output is not linear in the values")
            rows[each.layer].append(F.pad(each.weights, (0, place)))
    if not rows:
        raise UsageError(f"{experiment.entry} has no attention: calibrate with a run of a transformer")
    return [torch.stack(own, 2) for _, own in sorted(rows.items())]


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
