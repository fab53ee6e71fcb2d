"""Attention whose weights can be exactly zero: entmax of the logits (arXiv 1905.05702), found by the `entmax` package.

alpha-entmax(z)_j = max((alpha - 1) z_j - tau, 0)^(1 / (alpha - 1)), tau such that the weights sum to 1; alpha = 2 is sparsemax.
"""

from __future__ import annotations

from typing import Any, final

import torch
import torch.nn.functional as F
from entmax import entmax15, sparsemax  # type: ignore[import-untyped]
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, Need
from lgbench.attending import logits, masked_logits, visible, visible_counts
from lgbench_attention.scaled import multiplied

MAPPINGS = {1.5: entmax15, 2.0: sparsemax}


class Entmax(torch.autograd.Function):
    """alpha-entmax over the last dimension for alpha in 1.5 and 2, in a form that torch.func's transforms take.

    They refuse the package's own autograd functions. torch.compile does not take this one under vmap, so training runs
    uncompiled. Logits of minus infinity get exactly 0.
    """

    @staticmethod
    def forward(z: Tensor, alpha: float) -> Tensor:
        weights: Tensor = MAPPINGS[alpha](z, dim=-1)
        return weights

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.alpha = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """diag(s) - s s' / sum(s) with s = p^(2 - alpha) on the support, 0 elsewhere (arXiv 1905.05702)."""
        (weights,) = ctx.saved_tensors
        s = torch.where(weights > 0, weights ** (2 - ctx.alpha), 0.0)
        mean = (s * gradients[0]).sum(-1, keepdim=True) / s.sum(-1, keepdim=True)
        return s * (gradients[0] - mean), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], z: Tensor, alpha: float) -> tuple[Tensor, int]:
        """All dimensions but the last are those of a batch already."""
        return entmax(z.movedim(in_dims[0], 0), alpha), 0


def entmax(z: Tensor, alpha: float) -> Tensor:
    """alpha-entmax over the last dimension, of the shape of z."""
    weights: Tensor = Entmax.apply(z, alpha)  # type: ignore[no-untyped-call]
    return weights


class EntmaxAttention(nn.Module):
    """alpha-entmax(z) v."""

    def __init__(self, alpha: float, scale: float) -> None:
        super().__init__()
        self.alpha, self.scale = alpha, scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        return entmax(masked_logits(q, k, bias, self.scale), self.alpha) @ v


@final
class Entmax15(Attention):
    """1.5-entmax in place of softmax (arXiv 1905.05702): sparse, and smooth where it is not zero.

    weights = max(0, z / 2 - tau)^2, with tau such that they sum to 1.
    """

    name = "entmax15"

    def build(self, spec: AttentionSpec) -> EntmaxAttention:
        return EntmaxAttention(1.5, spec.scale)


@final
class Sparsemax(Attention):
    """Sparsemax in place of softmax: the point of the simplex nearest to the logits (arXiv 1602.02068).

    weights = max(0, z - tau), with tau such that they sum to 1.
    """

    name = "sparsemax"

    def build(self, spec: AttentionSpec) -> EntmaxAttention:
        return EntmaxAttention(2.0, spec.scale)


class AdaptiveScalableEntmaxAttention(nn.Module):
    """entmax15((1 + beta (ln n)^gamma) z) v, beta and gamma from the input at the query, a pair for each head."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.scale = spec.scale
        self.beta = nn.Linear(spec.width, spec.heads, bias=False)
        self.gamma = nn.Linear(spec.width, spec.heads, bias=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, query_input: Tensor) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D), query_input (B, Q, W) -> (B, H, Q, D)."""
        beta = F.softplus(self.beta(query_input)).mT[..., None]  # (B, H, Q, 1)
        gamma = 2 * torch.tanh(self.gamma(query_input)).mT[..., None]
        # A single key gets everything whatever the factor, and 0 to a negative power would be infinite.
        factor = 1 + beta * visible_counts(q, k).clamp(min=2).log() ** gamma
        return entmax(multiplied(factor, logits(q, k, bias, self.scale), visible(q, k)), 1.5) @ v


@final
class AdaptiveScalableEntmax(Attention):
    """ASEntmax: entmax15((1 + beta (ln n)^gamma) z), beta = softplus(w . x), gamma = 2 tanh(w' . x) (arXiv 2506.16640).

    x is the sublayer's input at the query's position; w and w' are learned per head, without bias, as in the published code.
    Our choices: ln n as in the paper, where the published code takes ln(n + 1); z includes the position code's bias, which the
    published code adds after the factor; and w and w' begin as every linear layer of torch does.
    """

    name = "asentmax"
    needs = frozenset({Need.QUERY_INPUT})

    def build(self, spec: AttentionSpec) -> AdaptiveScalableEntmaxAttention:
        return AdaptiveScalableEntmaxAttention(spec)
