"""Seeing: what happens in a watched model while it reads contexts, at the positions that are asked for.

Shapes: n contexts, T positions, W the width of the residual stream; in attention B contexts, H heads of D features, Q queries,
K keys. Positions are counted from the end: place 0 is the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionInside, Need, SublayerInside
from lgbench.measurement.watching import Watched, WatchedAttention, WatchedSublayer
from lgbench.measurement.weights import attention_weights


class Sight:
    """Collects what a watched model does, by place, for as long as :meth:`watching` lasts."""

    def __init__(self, watched: Watched, where: torch.device, tolerance: float) -> None:
        """`where` is the device that tensors go to. `tolerance` is that of :func:`attention_weights`."""
        self.watched, self.where, self.tolerance = watched, where, tolerance
        self.places: Sequence[int] = (0,)
        self.not_linear: set[int] = set()
        """Layers of attentions whose weights are not defined. Once one is here, nobody asks for its weights again."""
        self.attentions: dict[int, list[AttentionInside]] = defaultdict(list)
        self.sublayers: dict[int, list[SublayerInside]] = defaultdict(list)
        self.finals: dict[int, Tensor] = {}
        self._norm_inputs: dict[int, dict[int, Tensor]] = {}

    def forget(self) -> None:
        """Before the model reads other contexts."""
        for found in (self.attentions, self.sublayers, self.finals, self._norm_inputs):
            found.clear()

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
        for place in self.places:
            row = answer.shape[-2] - 1 - place
            if row < 0:
                continue
            weights = None
            if watched.spec.layer not in self.not_linear:
                query = _Query(watched, module, given, named, place)
                weights = attention_weights(query.take, query.values, self.tolerance, try_others=place == self.places[0])
                if weights is None:
                    self.not_linear.add(watched.spec.layer)
            known = None if weights is None else self._kept(weights)
            self.attentions[place].append(AttentionInside(watched.spec.layer, self._kept(answer[..., row, :]), known))

    def _see_norm(self, number: int, module: nn.Module, given: tuple[Any, ...]) -> None:
        self._norm_inputs[number] = self._at_places(given[0])

    def _see_sublayer(
        self, number: int, watched: WatchedSublayer, module: nn.Module, given: tuple[Any, ...], answer: Tensor
    ) -> None:
        befores = self._at_places(given[0]) if watched.is_residual else {}
        norm_inputs = self._norm_inputs.pop(number, {})
        for place, after in self._at_places(answer).items():
            seen = SublayerInside(watched.spec.role, watched.spec.layer, befores.get(place), after, norm_inputs.get(place))
            self.sublayers[place].append(seen)

    def _see_final(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        self.finals.update(self._at_places(given[0]))

    def _at_places(self, x: Tensor) -> dict[int, Tensor]:
        """By place, (n, W) of (n, T, W)."""
        return {place: self._kept(x[:, -1 - place]) for place in self.places if place < x.shape[1]} if x.ndim == 3 else {}

    def _kept(self, x: Tensor) -> Tensor:
        return x.detach().to(self.where).double()


class _Query:
    """One query of an attention, and what it may take from."""

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
        """What it takes from values, (B, H, 1, D). Not through the module's hooks, one of which is here."""
        answer: Tensor = self.module.forward(self.q, self.k, values, self.bias, **self.needed)
        return answer[..., -1:, :]
