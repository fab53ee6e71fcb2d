"""Models with known attentions, sublayers and final norms: built again, from parts with recorded modules.

The trained model stays untouched. The new model has the same architecture and parameter names, so trained weights fit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionSpec, Need, SublayerSpec
from lgbench.internals.attention import attention_weights
from lgbench.internals.sight import SightOfPlaces


class WatchedAttention(NamedTuple):
    """Attention module of a model."""

    module: nn.Module
    spec: AttentionSpec
    needs: frozenset[Need]


class WatchedSublayer(NamedTuple):
    """Sublayer of a model, with its norms."""

    module: nn.Module
    spec: SublayerSpec
    is_residual: bool
    """Whether the module adds the sublayer's output to the residual stream."""
    norms: tuple[nn.Module, ...]


@dataclass(frozen=True)
class Watched:
    """Model with its recorded modules."""

    model: nn.Module
    attentions: list[WatchedAttention] = field(default_factory=list)
    sublayers: list[WatchedSublayer] = field(default_factory=list)
    finals: list[nn.Module] = field(default_factory=list)
    """Norms before the logits: at most one."""


def watched(parts: Mapping[str, Any], build: Callable[[Mapping[str, Any]], nn.Module]) -> Watched:
    """Model that `build` makes from copies of these parts, by kind. Raises any error of building it."""
    attentions: list[WatchedAttention] = []
    sublayers: list[WatchedSublayer] = []
    finals: list[nn.Module] = []
    parts = dict(parts)

    def residual(module: nn.Module, spec: SublayerSpec, sublayer: nn.Module) -> None:
        sublayers.append(WatchedSublayer(module, spec, True, tuple(_norms(module, sublayer))))

    def output(module: nn.Module, spec: SublayerSpec) -> None:
        sublayers.append(WatchedSublayer(module, spec, False, tuple(_norms(module, None))))

    if (norm := parts.get("norm")) is not None:
        parts["norm"] = _telling(
            norm, {"residual": residual, "output": output, "final": lambda module, width: finals.append(module)}
        )
    if (attention := parts.get("attention")) is not None:
        needs = attention.needs
        parts["attention"] = _telling(
            attention, {"build": lambda module, spec: attentions.append(WatchedAttention(module, spec, needs))}
        )
    model = build(parts)
    inside = set(model.modules())
    return Watched(
        model,
        [each for each in attentions if each.module in inside],
        [each for each in sublayers if each.module in inside],
        [each for each in finals if each in inside],
    )


def _telling(part: Any, tell: dict[str, Callable[..., None]]) -> Any:
    """Copy of a part. After each named method the function in `tell` receives the new module and the method's arguments."""
    own = copy.copy(part)

    def replaced(name: str, told: Callable[..., None]) -> Callable[..., Any]:
        make = getattr(part, name)

        def made(*arguments: Any, **named: Any) -> Any:
            module = make(*arguments, **named)
            told(module, *arguments, **named)
            return module

        return made

    vars(own).update({name: replaced(name, told) for name, told in tell.items()})  # frozen dataclasses too
    return own


def _norms(module: nn.Module, sublayer: nn.Module | None) -> Iterator[nn.Module]:
    """Modules around a sublayer, except identities and containers."""
    if module is sublayer or type(module).forward is nn.Identity.forward:
        return
    children = list(module.children())
    holds = sublayer is not None and any(each is sublayer for each in module.modules())
    if holds or type(module).forward is nn.Sequential.forward:
        for child in children:
            yield from _norms(child, sublayer)
    else:
        yield module


class PartsSight(SightOfPlaces):
    """Sees a model that is built from parts of lgbench."""

    def __init__(self, watched: Watched, where: torch.device, tolerance: float) -> None:
        super().__init__(where, tolerance)
        self.watched = watched

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context with hooks on all recorded modules."""
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
    """One query of an attention, with its visible keys and values."""

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
        """Output of the query for other values, (B, H, 1, D). Calls `forward`, because a call would run the hooks again."""
        answer: Tensor = self.module.forward(self.q, self.k, values, self.bias, **self.needed)
        return answer[..., -1:, :]
