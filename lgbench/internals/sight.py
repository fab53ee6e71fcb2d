"""Sights: they keep what a model does while it reads contexts, at the positions that are asked for.

Shapes: n contexts, T positions, W the width of the residual stream; in attention H heads of D features, K keys. Positions are
counted from the end: place 0 is the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionInside, Insides, Role, SublayerInside


class Seen(NamedTuple):
    """Everything that was seen at one place."""

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
        """Return everything that was seen at a place."""


class SightOfPlaces:
    """Keeps what hooks see at each place."""

    last_alone = False

    def __init__(self, where: torch.device, tolerance: float) -> None:
        """`where` is the device that tensors go to. `tolerance` is that of :func:`attention_weights`."""
        self.where, self.tolerance = where, tolerance
        self.not_linear: set[int] = set()
        """Once a layer is here, nobody asks for its weights again."""
        self._tried: set[int] = set()
        """Layers whose attention was tried with other values than those of the contexts."""
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
        """Return everything that was seen at a place."""
        return Seen(tuple(self._attentions[place]), tuple(self._sublayers[place]), self._finals.get(place))

    def _see_query(self, layer: int, place: int, output: Tensor, weights_of: Callable[[bool], Tensor | None]) -> None:
        """Keep the output of a query, (n, H, D), and its weights, (n, H, K), which are looked for where the layer has some.

        `weights_of` is told whether to try other values, as :func:`attention_weights` may: in the first contexts alone, since
        it takes as long as finding the weights.
        """
        weights = None
        if layer not in self.not_linear:
            weights = weights_of(layer not in self._tried)
            self._tried.add(layer)
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


def joined(parts: Sequence[Insides], chosen: Tensor) -> Insides:
    """These contexts of all parts."""
    if len(parts) == 1 and len(chosen) == len(parts[0].logits):
        return parts[0]

    def join(tensors: Sequence[Tensor | None]) -> Tensor | None:
        known = [each for each in tensors if each is not None]
        return torch.cat(known)[chosen] if len(known) == len(tensors) else None

    def whole(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(tensors))[chosen]

    return Insides(
        length=parts[0].length,
        inputs=whole([part.inputs for part in parts]),
        logits=whole([part.logits for part in parts]),
        distribution=join([part.distribution for part in parts]),
        sources=join([part.sources for part in parts]),
        attentions=tuple(
            AttentionInside(own[0].layer, whole([each.output for each in own]), join([each.weights for each in own]))
            for own in zip(*(part.attentions for part in parts), strict=True)
        ),
        sublayers=tuple(
            SublayerInside(
                own[0].role,
                own[0].layer,
                join([each.before for each in own]),
                whole([each.after for each in own]),
                join([each.norm_input for each in own]),
            )
            for own in zip(*(part.sublayers for part in parts), strict=True)
        ),
        final=join([part.final for part in parts]),
    )
