"""Sight of a model that is built from parts of lgbench.

Shapes: n contexts, T positions, W the width of the residual stream; in attention B contexts, H heads of D features, Q queries,
K keys. Positions are counted from the end: place 0 is the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lgbench.contracts import Need
from lgbench.insides.sight import SightOfPlaces
from lgbench.insides.watching import Watched, WatchedAttention, WatchedSublayer
from lgbench.insides.weights import attention_weights


class PartsSight(SightOfPlaces):
    """Sees a model that is built from parts of lgbench."""

    def __init__(self, watched: Watched, where: torch.device, tolerance: float) -> None:
        super().__init__(where, tolerance)
        self.watched = watched

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside it, everything that the model does is seen."""
        with ExitStack() as hooks:
            for attention in self.watched.attentions:
                see = partial(self._see_attention, attention)
                hooks.enter_context(attention.module.register_forward_hook(see, with_kwargs=True))
            for number, sublayer in enumerate(self.watched.sublayers):
                for norm in sublayer.norms:
                    hooks.enter_context(norm.register_forward_pre_hook(partial(self._see_norm, number)))
                hooks.enter_context(sublayer.module.register_forward_hook(partial(self._see_sublayer, number, sublayer)))
            for final in self.watched.finals:
                hooks.enter_context(final.register_forward_pre_hook(self._see_final))
            yield

    def _see_attention(
        self, watched: WatchedAttention, module: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any], answer: Tensor
    ) -> None:
        for place in self._places:
            row = answer.shape[-2] - 1 - place
            if row < 0:
                continue

            def weights_of(try_others: bool, place: int = place) -> Tensor | None:
                query = _Query(watched, module, given, named, place)
                return attention_weights(query.take, query.values, self.tolerance, try_others)

            self._see_query(watched.spec.layer, place, answer[..., row, :], weights_of)

    def _see_sublayer(
        self, number: int, watched: WatchedSublayer, module: nn.Module, given: tuple[Any, ...], answer: Tensor
    ) -> None:
        self._add_sublayer(number, watched.spec.role, watched.spec.layer, given[0] if watched.is_residual else None, answer)


class _Query:
    """One query of an attention, with the keys and values that it may read."""

    def __init__(
        self, watched: WatchedAttention, module: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any], place: int
    ) -> None:
        q, k, v, bias = (*given, None)[:4] if "bias" not in named else (*given, named["bias"])
        every = Need.ALL_QUERIES in watched.needs
        keys = k.shape[-2] - (0 if watched.spec.cross_attention else place)
        first, last = (0, keys) if every else (q.shape[-2] - 1 - place, q.shape[-2] - place)
        self.module, self.q, self.k, self.values = module, q[..., first:last, :], k[..., :keys, :], v[..., :keys, :]
        if bias is not None:
            bias = bias if bias.shape[-2] == 1 else bias[..., first:last, :]
            bias = bias if bias.shape[-1] == 1 else bias[..., :keys]
        self.bias, self.needed = bias, {}
        for name, x in named.items():
            if name == Need.QUERY_INPUT.value:
                row = x.shape[-2] - 1 - place
                self.needed[name] = x[..., row : row + 1, :]
            elif name == Need.KEY_INPUT.value:
                self.needed[name] = x[..., :keys, :]

    def take(self, values: Tensor) -> Tensor:
        """The query's output for these values, (B, H, 1, D). Calls `forward`, so that the module's hooks do not run again."""
        answer: Tensor = self.module.forward(self.q, self.k, values, self.bias, **self.needed)
        return answer[..., -1:, :]
