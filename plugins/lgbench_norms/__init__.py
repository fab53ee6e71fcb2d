"""Norm schemes, as a plugin: the four of arXiv 2510.08341, the two of arXiv 2504.02827, and none at all.

N is RMSNorm with learned gain, F a sublayer, x the residual stream.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from lgbench import NormScheme, hookimpl
from lgbench_norms.placement import Placement


def rms_norm(dim: int) -> nn.RMSNorm:
    """RMSNorm with learned gain; the epsilon only guards against a vector of zeros."""
    return nn.RMSNorm(dim, eps=1e-6)


def standardize(dim: int) -> nn.LayerNorm:
    """Zero mean and unit variance over the features, nothing learned."""
    return nn.LayerNorm(dim, elementwise_affine=False)


SCHEMES = (
    Placement("no-norm", "x <- x + F(x), logits from x: no norm anywhere"),
    Placement("pre-norm", "x <- x + F(N(x)), logits from N(x)", before=rms_norm, logits=rms_norm),
    Placement("post-norm", "x <- N(x + F(x)), logits from x", total=rms_norm),
    Placement(
        "peri-norm",
        "x <- x + N(F(N(x))), logits from N(x) (Peri-LN, arXiv 2502.02732)",
        before=rms_norm,
        after={"attention": rms_norm, "mlp": rms_norm},
        logits=rms_norm,
    ),
    Placement(
        "peri-init-norm",
        "x <- N(embedding), then as peri-norm (Peri-LN with its optional norm on the embedding)",
        embedding=rms_norm,
        before=rms_norm,
        after={"attention": rms_norm, "mlp": rms_norm},
        logits=rms_norm,
    ),
    Placement(
        "attention-layer-norm",
        "pre-norm, and LayerNorm on the attention output before the residual: x <- x + LN(Attention(N(x)))",
        before=rms_norm,
        after={"attention": nn.LayerNorm},
        logits=rms_norm,
    ),
    Placement(
        "attention-standardize",
        "pre-norm, and the attention output standardized: x <- x + S(Attention(N(x))), S = LayerNorm without gain and bias",
        before=rms_norm,
        after={"attention": standardize},
        logits=rms_norm,
    ),
)


@hookimpl
def lgbench_norms() -> Iterable[NormScheme]:
    return SCHEMES
