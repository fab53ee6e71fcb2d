"""DeltaNet, DeltaProduct and gated DeltaNet, each with eigenvalues in [0, 1] or in [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench_linear.delta_rule import delta_rule
from lgbench_linear.layers import Decay, ShortConvolution, split, unit
from lgbench_linear.recurrence import NEEDS, Recurrence, require_self_attention

EPSILON = 1e-5
"""Of the norm on the outputs, as published."""


@final
class DeltaProductModule(Recurrence):
    """`householders` steps of the delta rule at each position, each with a key, a value and a beta of its own, and a norm."""

    def __init__(self, spec: AttentionSpec, largest_beta: float, householders: int) -> None:
        super().__init__()
        self.heads, self.scale, self.largest_beta, self.householders = spec.heads, spec.scale, largest_beta, householders
        self.more = nn.Linear(spec.width, 2 * (householders - 1) * spec.width, bias=False) if householders > 1 else None
        self.convolve = ShortConvolution(spec.heads, (1 + 2 * householders) * spec.head_dim)
        self.beta = nn.Linear(spec.width, spec.heads * householders, bias=False)
        self.norm = nn.RMSNorm(spec.head_dim, eps=EPSILON)

    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        dim = q.shape[-1]
        others = [] if self.more is None else [split(self.more(x), self.heads)]
        q, steps = self.convolve(torch.cat([q, k, v, *others], -1)).split([dim, 2 * self.householders * dim], -1)
        k, v = steps.unflatten(-1, (self.householders, 2, dim)).flatten(2, 3).unbind(-2)  # (B, H, n T, D) each
        beta = self.largest_beta * split(self.beta(x), self.heads).flatten(2).sigmoid()
        mixed: Tensor = self.norm(delta_rule(self.scale * unit(q), unit(k), v, beta))
        return mixed


@final
class GatedDeltaModule(Recurrence):
    """The delta rule with a decay, a norm on the outputs, and a gate on these."""

    def __init__(self, spec: AttentionSpec, largest_beta: float) -> None:
        super().__init__()
        self.heads, self.scale, self.largest_beta = spec.heads, spec.scale, largest_beta
        self.convolve = ShortConvolution(spec.heads, 3 * spec.head_dim)
        self.beta = nn.Linear(spec.width, spec.heads, bias=False)
        self.decay = Decay(spec.width, spec.heads)
        self.gate = nn.Linear(spec.width, spec.width, bias=False)
        self.norm = nn.RMSNorm(spec.head_dim, eps=EPSILON)

    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        q, k, v = self.convolve(torch.cat([q, k, v], -1)).chunk(3, -1)
        beta = self.largest_beta * self.beta(x).transpose(1, 2).sigmoid()
        _, log_decay = self.decay(x)
        mixed: Tensor = self.norm(delta_rule(self.scale * unit(q), unit(k), v, beta, log_decay))
        return mixed * F.silu(split(self.gate(x), self.heads))


@final
@dataclass(frozen=True)
class DeltaNet(Attention):
    """S <- a (I - beta k k^T) S + beta k v^T, o = S^T q, with unit vectors q and k.

    a is 1 (arXiv 2406.06484), or where it is `gated` a learned decay, and then the outputs have a gate too (arXiv 2412.06464).
    """

    name: str
    largest_beta: float
    about: str
    gated: bool = False
    needs = NEEDS

    def build(self, spec: AttentionSpec) -> DeltaProductModule | GatedDeltaModule:
        require_self_attention(self.name, spec)
        return GatedDeltaModule(spec, self.largest_beta) if self.gated else DeltaProductModule(spec, self.largest_beta, 1)


@final
@dataclass(frozen=True)
class DeltaProduct(Attention):
    """As DeltaNet with several steps at each position (arXiv 2502.10297). All but the first get their keys and values here."""

    name: str
    largest_beta: float
    about: str
    householders: int = 2
    needs = NEEDS
    ranges = {"householders": (1, 64)}

    def configured(self, *, householders: int = 2) -> Self:
        return replace(self, householders=householders)

    def build(self, spec: AttentionSpec) -> DeltaProductModule:
        require_self_attention(self.name, spec)
        return DeltaProductModule(spec, self.largest_beta, self.householders)


DELTA = "S <- (I - beta k k^T) S + beta k v^T, o = S^T q, |q| = |k| = 1"
PRODUCT = "as deltanet, with `householders` such steps at each position"
GATED = "S <- a (I - beta k k^T) S + beta k v^T, o = S^T q, |q| = |k| = 1, a = exp(-exp(A) softplus(w . x + b)), gated output"
POSITIVE, NEGATIVE = "beta = sigmoid(w . x): eigenvalues in [0, 1]", "beta = 2 sigmoid(w . x): eigenvalues in [-1, 1]"
UNLOCKING = "arXiv 2411.12537"

ATTENTIONS = (
    DeltaNet("deltanet", 1.0, f"DeltaNet (arXiv 2406.06484): {DELTA}, {POSITIVE}"),
    DeltaNet("deltanet-negative", 2.0, f"DeltaNet (arXiv 2406.06484, {UNLOCKING}): {DELTA}, {NEGATIVE}"),
    DeltaProduct("deltaproduct", 1.0, f"DeltaProduct (arXiv 2502.10297): {PRODUCT}, {POSITIVE}"),
    DeltaProduct("deltaproduct-negative", 2.0, f"DeltaProduct (arXiv 2502.10297): {PRODUCT}, {NEGATIVE}"),
    DeltaNet("gated-deltanet", 1.0, f"Gated DeltaNet (arXiv 2412.06464): {GATED}, {POSITIVE}", gated=True),
    DeltaNet(
        "gated-deltanet-negative", 2.0, f"Gated DeltaNet (arXiv 2412.06464, {UNLOCKING}): {GATED}, {NEGATIVE}", gated=True
    ),
)
