"""Seeing: what happens in a watched model while it reads contexts, at the positions that are asked for.

Shapes: n contexts, T positions, W the width of the residual stream; in attention B contexts, H heads of D features, Q queries,
K keys. Positions are counted from the end: place 0 is the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionInside, Need, Role, SublayerInside
from lgbench.insides.watching import Watched, WatchedAttention, WatchedSublayer
from lgbench.insides.weights import attention_weights


class Seen(NamedTuple):
    """What was seen at one place."""

    attentions: tuple[AttentionInside, ...]
    sublayers: tuple[SublayerInside, ...]
    final: Tensor | None


class Sight(Protocol):
    """Collects what a model does, by place, for as long as :meth:`watching` lasts."""

    where: torch.device
    """The device that tensors go to."""
    not_linear: set[int]
    """Layers of attentions whose weights are not defined."""
    last_alone: bool
    """Whether it sees the last position alone."""

    def watching(self) -> AbstractContextManager[None]:
        """Inside it, everything that the model does is seen."""

    def begin(self, places: Sequence[int]) -> None:
        """Before the model reads contexts: which places are looked at. Forgets what was seen before."""

    def at(self, place: int) -> Seen:
        """What the model did at a place."""


class SightOfPlaces:
    """Keeps what hooks see at each place."""

    last_alone = False

    def __init__(self, where: torch.device, tolerance: float) -> None:
        """`where` is the device that tensors go to. `tolerance` is that of :func:`attention_weights`."""
        self.where, self.tolerance = where, tolerance
        self.not_linear: set[int] = set()
        """Once a layer is here, nobody asks for its weights again."""
        self._places: Sequence[int] = (0,)
        self._attentions: dict[int, list[AttentionInside]] = defaultdict(list)
        self._sublayers: dict[int, list[SublayerInside]] = defaultdict(list)
        self._finals: dict[int, Tensor] = {}
        self._norm_inputs: dict[int, dict[int, Tensor]] = {}

    def begin(self, places: Sequence[int]) -> None:
        """Before the model reads contexts: which places are looked at. Forgets what was seen before."""
        self._places = places
        for found in (self._attentions, self._sublayers, self._finals, self._norm_inputs):
            found.clear()

    def at(self, place: int) -> Seen:
        """What the model did at a place."""
        return Seen(tuple(self._attentions[place]), tuple(self._sublayers[place]), self._finals.get(place))

    def _see_query(self, layer: int, place: int, output: Tensor, weights_of: Callable[[], Tensor | None]) -> None:
        """What a query takes, (n, H, D), and how its weights, (n, H, K), are found."""
        weights = None
        if layer not in self.not_linear:
            weights = weights_of()
            if weights is None:
                self.not_linear.add(layer)
        known = None if weights is None else self._kept(weights)
        self._attentions[place].append(AttentionInside(layer, self._kept(output), known))

    def _see_norm(self, number: int, module: nn.Module, given: tuple[Any, ...]) -> None:
        """The last norm of a sublayer that runs is the one that is kept."""
        self._norm_inputs[number] = self._at_places(given[0])

    def _add_sublayer(self, number: int, role: Role, layer: int, before: Tensor | None, after: Tensor) -> None:
        """A sublayer has run, with the residual stream (n, T, W) before and after it."""
        befores = {} if before is None else self._at_places(before)
        norm_inputs = self._norm_inputs.pop(number, {})
        for place, own in self._at_places(after).items():
            self._sublayers[place].append(SublayerInside(role, layer, befores.get(place), own, norm_inputs.get(place)))

    def _see_final(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        self._finals.update(self._at_places(given[0]))

    def _at_places(self, x: Tensor) -> dict[int, Tensor]:
        """By place, (n, W) of (n, T, W)."""
        return {place: self._kept(x[:, -1 - place]) for place in self._places if place < x.shape[1]} if x.ndim == 3 else {}

    def _kept(self, x: Tensor) -> Tensor:
        return x.detach().to(self.where).double()


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

            def weights_of(place: int = place) -> Tensor | None:
                query = _Query(watched, module, given, named, place)
                return attention_weights(query.take, query.values, self.tolerance, try_others=place == self._places[0])

            self._see_query(watched.spec.layer, place, answer[..., row, :], weights_of)

    def _see_sublayer(
        self, number: int, watched: WatchedSublayer, module: nn.Module, given: tuple[Any, ...], answer: Tensor
    ) -> None:
        self._add_sublayer(number, watched.spec.role, watched.spec.layer, given[0] if watched.is_residual else None, answer)


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
