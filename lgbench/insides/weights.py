"""The weights of any attention, found through its output.

The output of a query is linear in the values: W v, with the weights W. Given the identity for v, an attention would answer W,
in K features. The same numbers are the gradient of one feature of its answer with respect to the values, which costs one pass
for K keys where the identity costs K of them; tests compare the two.

Shapes: B contexts, H heads of D features, K keys.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lgbench.errors import lacks_memory

Take = Callable[[Tensor], Tensor]
"""The output of one query as a function of the values: (B, H, K, D) -> (B, H, 1, D)."""

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.05}
"""How far the output of a query may be from its weights times the values, as a share of all weights times the largest value."""


def attention_weights(take: Take, v: Tensor, tolerance: float, try_others: bool = True) -> Tensor | None:
    """The weights of the query, (B, H, K); None where its output is not linear in these values.

    Other values are tried, too, unless `try_others` is False. Where the output is not finite, the weights are NaN.
    """
    try:
        with torch.enable_grad():
            given = v.detach().requires_grad_()
            taken = take(given)
            (gradient,) = torch.autograd.grad(taken[..., 0].sum(), given)
    except Exception as error:  # the code of a plugin may raise anything on a tensor that wants a gradient
        if isinstance(error, RuntimeError) and lacks_memory(error):
            raise
        return None
    weights = gradient[..., 0]
    size = scale(weights, v)  # not finite where a weight is not
    finite = (taken.detach().isfinite().flatten(2).all(2) & size.isfinite()).all(1)
    chosen = slice(None) if finite.all() else finite  # a mask copies
    rounding = size[chosen] * tolerance
    pairs = [(v, taken.detach())]
    if try_others:
        others = _others(v)
        pairs.append((others, take(others)))
    if not all(agrees(weights[chosen], values[chosen], found[chosen], rounding) for values, found in pairs):
        return None
    return torch.where(finite[:, None, None], weights, torch.nan)


def _others(v: Tensor) -> Tensor:
    """Values of about the same size, each key's from another key, with another sign and another mean."""
    return v[..., :1, :1].abs() / 2 - v.roll(1, -2)


def scale(weights: Tensor, values: Tensor) -> Tensor:
    """All weights times the largest value: (B, H) float32, which rounding is a share of."""
    own = values.flatten(-2)  # the two at once, aminmax, are many times slower along a dimension
    return (weights.abs().sum(-1) * torch.maximum(own.amax(-1), -own.amin(-1))).float()


def agrees(weights: Tensor, values: Tensor, taken: Tensor, rounding: Tensor) -> bool:
    """Whether weights (B, H, K) times values are what was taken, but for so much rounding: (B, H)."""
    if not len(weights):
        return True
    apart = (weights[..., None, :].float() @ values.float() - taken.float()).abs().amax((-2, -1))
    return bool((apart <= rounding + 1e-9).all())
