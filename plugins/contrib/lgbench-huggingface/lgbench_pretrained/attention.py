"""The attention function that lgbench gives to models of `transformers`.

Most models ask transformers for a function of queries, keys and values. :class:`Attending` calls the eager function beside the
model's code for a few queries at a time. No (queries, keys) matrix of all queries is ever in memory. Results of the last query
are kept.

Shapes: n contexts, H heads of D features, G query heads per head of keys and values, T queries, K keys.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lgbench.internals.sight import agrees, attention_weights, scale

NAME = "lgbench"
"""Name of the attention function in transformers."""

WEIGHTS_AT_ONCE = 2**24
"""Largest number of weights in memory at once, n * H * queries * K: 64 MiB in float32. A single query may have more."""

Attend = Callable[..., tuple[Tensor, Tensor | None]]
"""(module, q, k, v, mask, **others) -> outputs of the queries, (n, T, H, D), and weights, (n, H, T, K)."""


class LastQuery(NamedTuple):
    """Last query of an attention: output, (n, H, D), and weights, (n, H, K), or None where weights are not defined."""

    output: Tensor
    weights: Tensor | None


Keep = Callable[[nn.Module, LastQuery], None]
"""Callback after each attention, with the module and its last query."""


class Attending:
    """Attention function of one model."""

    def __init__(self) -> None:
        self.keep: Keep | None = None
        """None outside of :meth:`looking`."""
        self.tolerance = 0.0
        """Tolerance of :func:`attention_weights`."""

    @classmethod
    def of(cls, model: Any) -> Attending | None:
        """Register a new function and make a model call it; None for a model without exchangeable attention."""
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

        if not model._can_set_attn_implementation():
            return None
        made = cls()

        # One name for each model: the registry of transformers is global.
        name = f"{NAME}-{id(made)}"
        AttentionInterface.register(name, made)
        AttentionMaskInterface.register(name, sdpa_mask)  # None for a causal mask, without T x T numbers
        model.set_attn_implementation(name)
        return made

    @contextmanager
    def looking(self, keep: Keep, tolerance: float) -> Iterator[None]:
        """Context in which each attention calls `keep`."""
        self.keep, self.tolerance = keep, tolerance
        try:
            yield
        finally:
            self.keep = None

    def __call__(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, *given: Any, **named: Any
    ) -> tuple[Tensor, None]:
        """Outputs of all queries, (n, T, H, D), with the signature and the names required by transformers."""
        queries, keys = q.shape[-2], k.shape[-2]
        attend, causal = own_function(module), _is_causal(module, named)
        size = max(1, WEIGHTS_AT_ONCE // (len(q) * q.shape[1] * keys))
        taken: list[Tensor] = []
        weights: Tensor | None = None
        for start in range(0, queries, size):
            rows = slice(start, min(start + size, queries))
            seen = keys - queries + rows.stop if attention_mask is None and causal else keys
            others = {name: _rows_of(other, rows, queries) for name, other in named.items()}
            own = _mask(attention_mask, rows, seen, keys - queries, causal, q)
            part, weights = attend(module, q[..., rows, :], k[..., :seen, :], v[..., :seen, :], own, *given, **others)
            taken.append(part)
        if self.keep is not None:
            row = slice(queries - 1, queries)
            others = {name: _rows_of(other, row, queries) for name, other in named.items()}
            own = _mask(attention_mask, row, keys, keys - queries, causal, q)

            def take(values: Tensor) -> Tensor:
                """Output of the last query: values (n, H/G, K, D) -> (n, H, 1, D)."""
                return attend(module, q[..., row, :], k, values, own, *given, **others)[0].transpose(1, 2)

            last = None if weights is None else weights[..., -1, :]
            output = taken[-1][:, -1]
            self.keep(module, LastQuery(output, _weights(take, v, output, last, self.tolerance)))
        return torch.cat(taken, 1), None


def own_function(module: nn.Module) -> Attend:
    """Eager attention beside the module's code, with weights; otherwise torch's function, without weights."""
    from transformers import AttentionInterface

    for kind in type(module).__mro__:
        own: Attend | None = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if own is not None:
            return own
    fallback: Attend = AttentionInterface()["sdpa"]
    return fallback


def _is_causal(module: nn.Module, named: dict[str, Any]) -> bool:
    """Whether attention is causal where no mask is given."""
    said = named.get("is_causal")
    return bool(getattr(module, "is_causal", True) if said is None else said)


def _rows_of(other: Any, rows: slice, queries: int) -> Any:
    """Rows of an argument with one row per query, such as a position bias; any other argument unchanged."""
    is_of_queries = isinstance(other, Tensor) and other.ndim == 4 and other.shape[-2] == queries > 1
    return other[..., rows, :] if is_of_queries else other


def _mask(mask: Tensor | None, rows: slice, seen: int, before: int, causal: bool, q: Tensor) -> Tensor | None:
    """Mask added to the logits of the given queries, (1 or n, 1 or H, rows, seen); None where nothing is masked.

    `before`: number of keys before the first query.
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
    """Weights of the last query, (n, H, K): the given weights, if they reproduce the output from the values.

    Otherwise weights from :func:`attention_weights`; None where the output is not linear in the values.
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
            """Output of one of the query heads with shared values."""
            return take(values)[:, place::shared]

        own = attention_weights(take_one, v, tolerance)
        if own is None:
            return None
        found.append(own)
    return torch.stack(found, 2).flatten(1, 2)
