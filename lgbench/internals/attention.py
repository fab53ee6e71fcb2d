"""The attention function given to models of `transformers`, and the weights of any attention."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

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


NAME = "lgbench"
"""By which transformers knows the function."""

WEIGHTS_AT_ONCE = 2**24
"""Weights that are there at once at most, n * H * queries * K, unless one query has more: 64 MiB in float32."""

Attend = Callable[..., tuple[Tensor, Tensor | None]]
"""(module, q, k, v, mask, **others) -> the outputs of queries, (n, T, H, D), and their weights, (n, H, T, K)."""


class LastQuery(NamedTuple):
    """The last query of an attention: its output, (n, H, D), and its weights, (n, H, K), which are None where not defined."""

    output: Tensor
    weights: Tensor | None


Keep = Callable[[nn.Module, LastQuery], None]
"""Called with each attention module, as it has run."""


class Attending:
    """The attention function of one model."""

    def __init__(self) -> None:
        self.keep: Keep | None = None
        """None while nobody looks."""
        self.tolerance = 0.0
        """That of :func:`lgbench.internals.attention.attention_weights`."""

    @classmethod
    def of(cls, model: Any) -> Attending | None:
        """Have a model call such a function from now on; None where it does not ask transformers for one."""
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

        if not model._can_set_attn_implementation():
            return None
        made = cls()
        # Each model has a name of its own, so that two of them do not meet.
        name = f"{NAME}-{id(made)}"
        AttentionInterface.register(name, made)
        AttentionMaskInterface.register(name, sdpa_mask)  # gives None for a causal mask, which needs no T x T numbers
        model.set_attn_implementation(name)
        return made

    @contextmanager
    def looking(self, keep: Keep, tolerance: float) -> Iterator[None]:
        """Inside, `keep` is called."""
        self.keep, self.tolerance = keep, tolerance
        try:
            yield
        finally:
            self.keep = None

    def __call__(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *given: Any, **named: Any
    ) -> tuple[Tensor, None]:
        """As transformers calls it: the outputs of all queries, (n, T, H, D)."""
        queries, keys = q.shape[-2], k.shape[-2]
        attend, causal = own_function(module), _is_causal(module, named)
        size = max(1, WEIGHTS_AT_ONCE // (len(q) * q.shape[1] * keys))
        taken: list[Tensor] = []
        weights: Tensor | None = None
        for start in range(0, queries, size):
            rows = slice(start, min(start + size, queries))
            seen = keys - queries + rows.stop if mask is None and causal else keys
            others = {name: _rows_of(other, rows, queries) for name, other in named.items()}
            own = _mask(mask, rows, seen, keys - queries, causal, q)
            part, weights = attend(module, q[..., rows, :], k[..., :seen, :], v[..., :seen, :], own, *given, **others)
            taken.append(part)
        if self.keep is not None:
            row = slice(queries - 1, queries)
            others = {name: _rows_of(other, row, queries) for name, other in named.items()}
            own = _mask(mask, row, keys, keys - queries, causal, q)

            def take(values: Tensor) -> Tensor:
                """(n, H/G, K, D) -> (n, H, 1, D)."""
                return attend(module, q[..., row, :], k, values, own, *given, **others)[0].transpose(1, 2)

            last = None if weights is None else weights[..., -1, :]
            output = taken[-1][:, -1]
            self.keep(module, LastQuery(output, _weights(take, v, output, last, self.tolerance)))
        return torch.cat(taken, 1), None


def own_function(module: nn.Module) -> Attend:
    """The function that stands beside the code of a module, which gives weights; else that of torch, which does not."""
    from transformers import AttentionInterface

    for kind in type(module).__mro__:
        own: Attend | None = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if own is not None:
            return own
    fallback: Attend = AttentionInterface()["sdpa"]
    return fallback


def _is_causal(module: nn.Module, named: dict[str, Any]) -> bool:
    """Whether queries see nothing that follows them, where there is no mask."""
    said = named.get("is_causal")
    return bool(getattr(module, "is_causal", True) if said is None else said)


def _rows_of(other: Any, rows: slice, queries: int) -> Any:
    """The rows of an argument that has one for each query, such as a bias of positions; any other as it is."""
    is_of_queries = isinstance(other, Tensor) and other.ndim == 4 and other.shape[-2] == queries > 1
    return other[..., rows, :] if is_of_queries else other


def _mask(mask: Tensor | None, rows: slice, seen: int, before: int, causal: bool, q: Tensor) -> Tensor | None:
    """The mask that is added to the logits of these queries, (1 or n, 1 or H, rows, seen); None where nothing is masked.

    `before` keys stand before the first query.
    """
    if mask is not None:
        mask = mask[..., rows, :] if mask.shape[-2] > 1 else mask
        if mask.dtype is not torch.bool:
            return mask
    elif causal:
        places = torch.arange(before + rows.start, before + rows.stop, device=q.device)
        mask = (torch.arange(seen, device=q.device) <= places[:, None])[None, None]
    else:
        return None
    return torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~mask, torch.finfo(q.dtype).min)


def _weights(
    take: Callable[[Tensor], Tensor], v: Tensor, output: Tensor, given: Tensor | None, tolerance: float
) -> Tensor | None:
    """The weights of the last query, (n, H, K): those that are given, if they make the output of the values.

    Else those that follow from its output for other values; None where that is not linear in them.
    """
    shared, unequal = divmod(output.shape[1], v.shape[1])
    if unequal:
        return None
    each = v.repeat_interleave(shared, 1)
    fits = given is not None and given.shape == each.shape[:-1] and output.shape[-1] == v.shape[-1]
    if given is not None and fits and agrees(given, each, output[:, :, None], scale(given, each) * tolerance):
        return given
    found = []
    for place in range(shared):

        def take_one(values: Tensor, place: int = place) -> Tensor:
            """Of one of the heads that share values."""
            return take(values)[:, place::shared]

        own = attention_weights(take_one, v, tolerance)
        if own is None:
            return None
        found.append(own)
    return torch.stack(found, 2).flatten(1, 2)
