"""Norm schemes, as a plugin: RMSNorm in every combination of three places, and the two schemes of arXiv 2504.02827.

N is RMSNorm with learned gain, F a sublayer, x the residual stream.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from lgbench import NormScheme, Role, hookimpl
from lgbench_norms.placement import Norm, Placement


def rms_norm(dim: int) -> nn.RMSNorm:
    """RMSNorm with learned gain; the epsilon only guards against a vector of zeros."""
    return nn.RMSNorm(dim, eps=1e-6)


def standardize(dim: int) -> nn.LayerNorm:
    """Zero mean and unit variance over the features, nothing learned."""
    return nn.LayerNorm(dim, elementwise_affine=False)


AFTER: dict[Role, Norm] = {"attention": rms_norm, "mlp": rms_norm}
"""RMSNorm on the output of every sublayer."""

# Three factors: a norm on a sublayer's input (no, yes), on its output (no, yes), and on the sum (nowhere, after every
# residual connection, before the logits alone). The papers leave open whether "post-norm" is on the output or on the sum,
# and whether pre-norm has a norm before the logits, so all twelve combinations are here.
SCHEMES = (
    Placement("no-norm", "x <- x + F(x), logits from x: no norm anywhere"),
    Placement("final-norm", "x <- x + F(x), logits from N(x)", logits=rms_norm),
    Placement("post-norm", "x <- N(x + F(x)), logits from x", total=rms_norm),
    Placement("input-norm", "x <- x + F(N(x)), logits from x: pre-norm without the norm before the logits", before=rms_norm),
    Placement("pre-norm", "x <- x + F(N(x)), logits from N(x)", before=rms_norm, logits=rms_norm),
    Placement("input-post-norm", "x <- N(x + F(N(x))), logits from x", before=rms_norm, total=rms_norm),
    Placement("output-norm", "x <- x + N(F(x)), logits from x: the norm on the sublayer's output alone", after=AFTER),
    Placement("olmo2-norm", "x <- x + N(F(x)), logits from N(x) (OLMo 2, arXiv 2501.00656)", after=AFTER, logits=rms_norm),
    Placement("output-post-norm", "x <- N(x + N(F(x))), logits from x", after=AFTER, total=rms_norm),
    Placement(
        "input-output-norm",
        "x <- x + N(F(N(x))), logits from x: peri-norm without the norm before the logits",
        before=rms_norm,
        after=AFTER,
    ),
    Placement(
        "peri-norm",
        "x <- x + N(F(N(x))), logits from N(x) (Peri-LN, arXiv 2502.02732)",
        before=rms_norm,
        after=AFTER,
        logits=rms_norm,
    ),
    Placement("input-output-post-norm", "x <- N(x + N(F(N(x)))), logits from x", before=rms_norm, after=AFTER, total=rms_norm),
    Placement(
        "peri-init-norm",
        "x <- N(embedding), then as peri-norm (Peri-LN with its optional norm on the embedding)",
        embedding=rms_norm,
        before=rms_norm,
        after=AFTER,
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
