"""Sights of models built from parts of lgbench or from layers of `x-transformers`, and the choice of a sight for any model.

Models from parts are built again with recorded modules. The trained model stays untouched; the new one has the same parameter
names, so trained weights fit. Shapes: n contexts, T positions, W the width of the residual stream; in attention H heads of D
features, K keys.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionSpec, Need, Role, SublayerSpec
from lgbench.errors import lacks_memory
from lgbench.internals.attention import agrees, attention_weights, scale
from lgbench.internals.decoder import DecoderSight, decoder_in, outermost
from lgbench.internals.sight import Sight, SightOfPlaces


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


def attention_layers_in(module: nn.Module) -> nn.Module | None:
    """Stack of x-transformers layers in a module; None for no stack or several stacks."""
    library = sys.modules.get("x_transformers.x_transformers")
    found = [] if library is None else outermost(module, library.AttentionLayers)
    return found[0] if len(found) == 1 else None


class AttentionLayersSight(SightOfPlaces):
    """Sight of x-transformers layers: attentions, and sublayers with an additive residual connection."""

    def __init__(self, layers: Any, where: torch.device, tolerance: float) -> None:
        """`where`: device of the kept tensors. `tolerance`: as for :func:`attention_weights`."""
        super().__init__(where, tolerance)
        self.layers = layers
        self._befores: dict[int, Tensor] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context with hooks on all layers."""
        from x_transformers.attend import Attend
        from x_transformers.x_transformers import Residual

        with ExitStack() as hooks:
            for number, (norms, block, residual) in enumerate(self.layers.layers):
                layer = number // self.layers.len_default_block + 1
                attends = [each for each in block.modules() if isinstance(each, Attend)]
                for attend in attends:
                    see = partial(self._see_attention, layer)
                    hooks.enter_context(attend.register_forward_hook(see, with_kwargs=True))
                known = [norm for norm in norms if norm is not None]
                for norm in known:
                    hooks.enter_context(norm.register_forward_pre_hook(partial(self._see_norm, number)))
                if type(residual) is Residual:
                    end = partial(self._end, number, "attention" if attends else "mlp", layer)
                    after = norms[2]  # the norm after the residual connection
                    hooks.enter_context(residual.register_forward_hook(partial(self._see_sum, number, None if after else end)))
                    if after:
                        hooks.enter_context(after.register_forward_hook(lambda norm, given, answer, end=end: end(answer)))
            if isinstance(self.layers.final_norm, nn.Module):
                hooks.enter_context(self.layers.final_norm.register_forward_pre_hook(self._see_final))
            yield

    def _see_attention(
        self, layer: int, attend: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any], answer: tuple[Tensor, Any]
    ) -> None:
        q, k, v, *others = given
        output, about = answer
        positions = q.shape[-2]
        for place in self._places:
            row = positions - 1 - place
            if row < 0:
                continue

            def take(values: Tensor, row: int = row) -> Tensor:
                """Output of one query. `forward` skips the module's hooks, to which this function belongs."""
                found: Tensor = attend.forward(q, k, values, *others, **named)[0]
                return found[..., row : row + 1, :]

            def weights_of(try_others: bool, row: int = row) -> Tensor | None:
                told = about.post_softmax_attn  # None from a fused kernel; with mixed heads, not the weights of the output
                weights: Tensor | None = None if told is None else told[..., row, :]
                if weights is None or not self._make(weights, v, output[..., row : row + 1, :]):
                    weights = attention_weights(take, v, self.tolerance, try_others)
                    if weights is None:
                        return None

                # Memory keys before the context are no positions.
                return weights[..., v.shape[-2] - positions :][..., : row + 1]

            self._see_query(layer, place, output[..., row, :], weights_of)

    def _make(self, weights: Tensor, v: Tensor, taken: Tensor) -> bool:
        """Whether weights (n, H, K) times values (n, H, K, D) equal the output of a query, (n, H, 1, D)."""
        return weights.shape == v.shape[:-1] and agrees(weights, v, taken, scale(weights, v) * self.tolerance)

    def _see_sum(self, number: int, end: Any, residual: nn.Module, given: tuple[Any, ...], answer: Tensor) -> None:
        """Hook of a residual connection. Its arguments are the sublayer's output and the residual stream."""
        self._befores[number] = given[1]
        if end is not None:
            end(answer)

    def _end(self, number: int, role: Role, layer: int, after: Tensor) -> None:
        self._add_sublayer(number, role, layer, self._befores.pop(number), after)


def sight_of(model: Watched, where: torch.device, tolerance: float, libraries: bool) -> Sight:
    """Sight for a model by its construction: from parts, or, with `libraries`, from layers of a known library."""
    if libraries and not (model.attentions or model.sublayers):
        with reading_layers():
            if decoder := decoder_in(model.model):
                return DecoderSight(decoder, where, tolerance)
            if layers := attention_layers_in(model.model):
                return AttentionLayersSight(layers, where, tolerance)
    return PartsSight(model, where, tolerance)


class Unreadable(Exception):
    """Unreadable layers of a library. A run without internals is still a run."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextmanager
def reading_layers(sight: Sight | None = None) -> Iterator[None]:
    """Context for reading a library's layers: turns all errors except lack of memory into Unreadable.

    With a `sight` of parts, errors pass unchanged.
    """
    try:
        yield
    except Exception as error:  # another version of the library, or unusual use in a plugin
        if isinstance(sight, PartsSight) or lacks_memory(error):
            raise
        raise Unreadable(error) from error
