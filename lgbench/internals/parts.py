"""Sights of models that are built from parts of lgbench, and of models with layers of other libraries.

Models from parts are built again with recorded modules. The trained model stays untouched; the new one has the same parameter
names, so trained weights fit. Shapes: n contexts, T positions, W the width of the residual stream; in attention H heads of D
features, K keys.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionSpec, Need, SublayerSpec
from lgbench.internals.sight import Sight, attention_weights

Build = Callable[[Mapping[str, Any]], nn.Module]
"""Builder of a model from parts by kind."""

GROUP = "lgbench.internals"
"""Entry-point group of packs that see the layers of a library. The name of an entry point is the library's import package.

Its function makes a sight from the arguments of :class:`lgbench.internals.sight.Sight`, or returns None for a model that it
cannot see.
"""


def sight_of(parts: Mapping[str, Any], build: Build, where: torch.device, tolerance: float) -> Sight:
    """Sight of a model by its construction: from parts, or from layers of a library known to a pack.

    Raises any error of building the model or of a pack.
    """
    own = PartsSight(parts, build, where, tolerance)
    if own.attentions or own.sublayers:
        return own
    libraries = {type(module).__module__.partition(".")[0] for module in own.model.modules()}
    for entry_point in entry_points(group=GROUP):
        if entry_point.name in libraries:
            found: Sight | None = entry_point.load()(own.model, where, tolerance)
            if found is not None:
                return found
    return own


class Sublayer(NamedTuple):
    """Sublayer of a model, with its norms."""

    module: nn.Module
    spec: SublayerSpec
    is_residual: bool
    """Whether the module adds the sublayer's output to the residual stream."""
    norms: list[nn.Module]


class PartsSight(Sight):
    """Sees a model that is built from parts of lgbench."""

    def __init__(self, parts: Mapping[str, Any], build: Build, where: torch.device, tolerance: float) -> None:
        """Builds the model from copies of these parts. Raises any error of building it."""
        attentions: dict[nn.Module, AttentionSpec] = {}
        sublayers: list[Sublayer] = []
        finals: list[nn.Module] = []

        def residual(module: nn.Module, spec: SublayerSpec, sublayer: nn.Module) -> None:
            sublayers.append(Sublayer(module, spec, True, [*_norms(module, sublayer)]))

        def output(module: nn.Module, spec: SublayerSpec) -> None:
            sublayers.append(Sublayer(module, spec, False, [*_norms(module, None)]))

        def final(module: nn.Module, width: int) -> None:
            finals.append(module)

        def attend(module: nn.Module, spec: AttentionSpec) -> None:
            attentions[module] = spec

        norm, attention = parts.get("norm"), parts.get("attention")
        recorded = {} if norm is None else {"norm": _recorded(norm, residual=residual, output=output, final=final)}
        if attention is not None:
            recorded["attention"] = _recorded(attention, build=attend)
            self.needs: frozenset[Need] = attention.needs
        super().__init__(build({**parts, **recorded}), where, tolerance)
        inside = set(self.model.modules())  # a method may have been called for a module that is not used
        self.attentions = {module: spec for module, spec in attentions.items() if module in inside}
        self.sublayers = [each for each in sublayers if each.module in inside]
        self.finals = [each for each in finals if each in inside]
        """Norms before the logits: at most one."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context with hooks on all recorded modules."""
        with ExitStack() as hooks:
            for attention, spec in self.attentions.items():
                hooks.enter_context(attention.register_forward_hook(partial(self._see_attention, spec), with_kwargs=True))
            for number, sublayer in enumerate(self.sublayers):
                for norm in sublayer.norms:
                    hooks.enter_context(norm.register_forward_pre_hook(partial(self._see_norm, number)))
                hooks.enter_context(sublayer.module.register_forward_hook(partial(self._see_sublayer, number, sublayer)))
            for final in self.finals:
                hooks.enter_context(final.register_forward_pre_hook(self._see_final))
            yield

    def _see_attention(
        self, spec: AttentionSpec, module: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any], answer: Tensor
    ) -> None:
        for place in self._places:
            row = answer.shape[-2] - 1 - place
            if row >= 0:
                weights_of = partial(self._weights, spec, place, module, given, named)
                self._see_query(spec.layer, place, answer[..., row, :], weights_of)

    def _weights(
        self,
        spec: AttentionSpec,
        place: int,
        module: nn.Module,
        given: tuple[Any, ...],
        named: Mapping[str, Any],
        try_others: bool,
    ) -> Tensor | None:
        """Weights of the query at a place, from its visible keys and values."""
        q, k, v, bias = (*given, None)[:4] if "bias" not in named else (*given, named["bias"])
        keys = k.shape[-2] - (0 if spec.cross_attention else place)
        queries = slice(0, keys) if Need.ALL_QUERIES in self.needs else slice(q.shape[-2] - 1 - place, q.shape[-2] - place)
        if bias is not None:
            bias = bias if bias.shape[-2] == 1 else bias[..., queries, :]
            bias = bias if bias.shape[-1] == 1 else bias[..., :keys]
        needed = {}
        for name, x in named.items():
            if name == Need.QUERY_INPUT.value:
                row = x.shape[-2] - 1 - place
                needed[name] = x[..., row : row + 1, :]
            elif name == Need.KEY_INPUT.value:
                needed[name] = x[..., :keys, :]

        def take(values: Tensor) -> Tensor:
            """Output of the query for other values, (B, H, 1, D). `forward`, because a call would run the hooks again."""
            answer: Tensor = module.forward(q[..., queries, :], k[..., :keys, :], values, bias, **needed)
            return answer[..., -1:, :]

        return attention_weights(take, v[..., :keys, :], self.tolerance, try_others)

    def _see_sublayer(self, number: int, own: Sublayer, module: nn.Module, given: tuple[Any, ...], answer: Tensor) -> None:
        self._add_sublayer(number, own.spec.role, own.spec.layer, given[0] if own.is_residual else None, answer)


def _recorded(part: Any, **records: Callable[..., None]) -> Any:
    """Copy of a part. After each named method the function in `records` receives the new module and the method's arguments."""
    own = copy.copy(part)

    def replaced(name: str, record: Callable[..., None]) -> Callable[..., Any]:
        make = getattr(part, name)

        def made(*arguments: Any, **named: Any) -> Any:
            module = make(*arguments, **named)
            record(module, *arguments, **named)
            return module

        return made

    vars(own).update({name: replaced(name, record) for name, record in records.items()})  # frozen dataclasses too
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
