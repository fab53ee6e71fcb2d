"""Sights: collectors of a model's internals at chosen positions of contexts.

Shapes: n contexts, T positions, W the width of the residual stream; in attention H heads of D features, K keys. A place is a
position counted from the end: 0 is the last position.
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
    """Internals at one place."""

    attentions: tuple[AttentionInside, ...]
    sublayers: tuple[SublayerInside, ...]
    final: Tensor | None


class Sight(Protocol):
    """Collector of a model's internals by place, within :meth:`watching`."""

    where: torch.device
    """Device of the kept tensors."""
    not_linear: set[int]
    """Attention layers with undefined weights."""
    last_alone: bool
    """Whether the sight is limited to the last position."""

    def watching(self) -> AbstractContextManager[None]:
        """Context in which the model's internals are collected."""

    def begin(self, places: Sequence[int]) -> None:
        """Forget earlier contexts and choose the places of the next forward pass."""

    def at(self, place: int) -> Seen:
        """Return the internals at a place."""


class SightOfPlaces:
    """Sight with hooks that keep internals at several places."""

    last_alone = False

    def __init__(self, where: torch.device, tolerance: float) -> None:
        """`where`: device of the kept tensors. `tolerance`: as for :func:`lgbench.internals.attention.attention_weights`."""
        self.where, self.tolerance = where, tolerance
        self.not_linear: set[int] = set()
        """Attention layers with undefined weights, which are not computed again."""
        self._tried: set[int] = set()
        """Layers already checked for linearity with other values."""
        self._places: Sequence[int] = (0,)
        self._attentions: dict[int, list[AttentionInside]] = defaultdict(list)
        self._sublayers: dict[int, list[SublayerInside]] = defaultdict(list)
        self._finals: dict[int, Tensor] = {}
        self._norm_inputs: dict[int, dict[int, Tensor]] = {}

    def begin(self, places: Sequence[int]) -> None:
        """Forget earlier contexts and choose the places of the next forward pass."""
        self._places = places
        for found in (self._attentions, self._sublayers, self._finals, self._norm_inputs):
            found.clear()

    def at(self, place: int) -> Seen:
        """Return the internals at a place."""
        return Seen(tuple(self._attentions[place]), tuple(self._sublayers[place]), self._finals.get(place))

    def _see_query(self, layer: int, place: int, output: Tensor, weights_of: Callable[[bool], Tensor | None]) -> None:
        """Keep the output of a query, (n, H, D), and its weights, (n, H, K), where weights are defined.

        `weights_of`: function from `try_others` of :func:`lgbench.internals.attention.attention_weights` to the weights. Other
        values are tried in the first contexts alone: a check costs as much as the weights.
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
        """Hook of a sublayer's norm. Keeps the input of the norm that ran last."""
        self._norm_inputs[number] = self._at_places(given[0])

    def _add_sublayer(self, number: int, role: Role, layer: int, before: Tensor | None, after: Tensor) -> None:
        """Keep a sublayer, with the residual stream (n, T, W) before and after."""
        befores = {} if before is None else self._at_places(before)
        norm_inputs = self._norm_inputs.pop(number, {})
        for place, own in self._at_places(after).items():
            self._sublayers[place].append(SublayerInside(role, layer, befores.get(place), own, norm_inputs.get(place)))

    def _see_final(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        self._finals.update(self._at_places(given[0]))

    def _at_places(self, x: Tensor) -> dict[int, Tensor]:
        """Vectors (n, W) by place, from (n, T, W)."""
        return {place: self._kept(x[:, -1 - place]) for place in self._places if place < x.shape[1]} if x.ndim == 3 else {}

    def _kept(self, x: Tensor) -> Tensor:
        return x.detach().to(self.where).double()


def joined(parts: Sequence[Insides], chosen: Tensor) -> Insides:
    """Internals of the chosen contexts, from consecutive parts of a batch."""
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
