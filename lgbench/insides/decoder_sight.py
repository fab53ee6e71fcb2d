"""Sight of a decoder of `transformers`: what its last position does, layer by layer.

Shapes: n contexts, T positions, H heads of D features, K keys, W the width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionInside, SublayerInside
from lgbench.insides.attending import LastQuery
from lgbench.insides.decoder import Decoder
from lgbench.insides.flow import Call, Flow, is_norm
from lgbench.insides.sight import Seen

Given = tuple[Any, ...]
Named = Mapping[str, Any]


class DecoderSight:
    """Sees everything that a decoder does at the last position, for as long as :meth:`watching` lasts."""

    last_alone = True

    def __init__(self, decoder: Decoder, where: torch.device, tolerance: float) -> None:
        """`where` is the device that tensors go to. `tolerance` is that of :func:`lgbench.insides.weights.agrees`."""
        self.decoder, self.where, self.tolerance = decoder, where, tolerance
        self.not_linear: set[int] = set()
        self._attentions: list[AttentionInside] = []
        self._sublayers: list[SublayerInside] = []
        self._final: Tensor | None = None
        self._flow: Flow | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside it, everything is seen that the model does."""
        decoder = self.decoder
        with ExitStack() as hooks:
            for number, layer in enumerate(decoder.layers, 1):
                hooks.enter_context(layer.register_forward_pre_hook(partial(self._begin, number), with_kwargs=True))
                hooks.enter_context(layer.register_forward_hook(self._end))
            inside = {each for layer in decoder.layers for each in layer.modules()}
            for module in inside - {*decoder.layers}:  # layers may share a module
                hooks.enter_context(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(self._leave))
            for module in decoder.model.modules():
                if is_norm(module) and module not in inside:
                    hooks.enter_context(module.register_forward_pre_hook(self._see_norm, with_kwargs=True))
            if decoder.attending is not None:
                hooks.enter_context(decoder.attending.looking(self._attend, self.tolerance))
            yield

    def begin(self, places: Sequence[int] = (0,)) -> None:
        """Before the model reads other contexts. Forgets what was seen."""
        assert tuple(places) == (0,)
        self._attentions, self._sublayers, self._final, self._flow = [], [], None, None

    def at(self, place: int) -> Seen:
        """Return everything that was seen at a place, which is the last position."""
        return Seen(tuple(self._attentions), tuple(self._sublayers), self._final)

    def _begin(self, number: int, layer: nn.Module, given: Given, named: Named) -> None:
        x = _first(given, named)
        self._flow = None if x is None else Flow(layer, number, x)

    def _end(self, layer: nn.Module, given: Given, answer: Any) -> None:
        flow, after = self._flow, _first((answer,), {})
        if flow is None or flow.layer is not layer or after is None:
            return
        for seen in flow.sublayers(after):
            before = None if seen.before is None else seen.before.to(self.where)
            norm_input = None if seen.norm_input is None else seen.norm_input.to(self.where)
            self._sublayers.append(SublayerInside(seen.role, seen.layer, before, seen.after.to(self.where), norm_input))
        flow.calls.clear()

    def _enter(self, module: nn.Module, given: Given, named: Named) -> None:
        x = _first(given, named)
        if self._flow is not None and x is not None:
            self._flow.calls.append(Call(module, x))

    def _leave(self, module: nn.Module, given: Given, answer: Any) -> Any:
        """Returns the answer without its weights where a module gives weights of all queries."""
        flow = self._flow
        if flow is None:
            return None
        call = next((each for each in reversed(flow.calls) if each.module is module and each.answer is None), None)
        if call is None:
            return None
        call.answer = _first((answer,), {})
        return self._without_weights(flow, call, answer) if self.decoder.attending is None else None

    def _attend(self, module: nn.Module, query: LastQuery) -> None:
        """An attention that calls lgbench's function has run."""
        if self._flow is not None:
            self._flow.attended = module
            self._add(self._flow.number, query)

    def _without_weights(self, flow: Flow, call: Call, answer: Any) -> Any:
        """An attention of a model with a function of its own, which returns its weights, (n, H, T, K), beside its answer."""
        if not isinstance(answer, tuple) or flow.attended is not None:
            return None
        queries = flow.before.shape[1]
        place = next((i for i, x in enumerate(answer) if isinstance(x, Tensor) and _are_weights(x, queries)), None)
        if place is None:
            return None
        weights = answer[place][..., -1:, :].clone()
        taken = flow.last(_before_projection(flow, call))
        flow.attended = call.module
        self._add(flow.number, LastQuery(taken.view(*weights.shape[:2], -1), weights[..., 0, :]))
        return (*answer[:place], weights, *answer[place + 1 :])

    def _add(self, layer: int, query: LastQuery) -> None:
        if query.weights is None:
            self.not_linear.add(layer)
        weights = None if query.weights is None else self._kept(query.weights)
        self._attentions.append(AttentionInside(layer, self._kept(query.output), weights))

    def _see_norm(self, norm: nn.Module, given: Given, named: Named) -> None:
        """The first norm after the last layer stands before the logits."""
        x = _first(given, named)
        if x is not None and self._flow is not None and self._flow.layer is self.decoder.layers[-1] and self._final is None:
            self._final = self._kept(self._flow.last(x))

    def _kept(self, x: Tensor) -> Tensor:
        return x.detach().to(self.where).double()


def _first(given: Given, named: Named) -> Tensor | None:
    """The hidden states among these: by their name, or the first tensor of numbers with features, also within a tuple."""
    for each in (named.get("hidden_states"), *given, *named.values()):
        x = _first(each, {}) if isinstance(each, tuple) else each
        if isinstance(x, Tensor) and x.is_floating_point() and x.ndim >= 2:
            return x
    return None


def _are_weights(x: Tensor, queries: int) -> bool:
    """Whether a tensor is weights of queries, (n, H, T, K): none is negative, and those of the last query sum to 1."""
    if x.ndim != 4 or x.shape[-2] != queries:
        return False
    last = x[..., -1, :].double()
    return bool((last >= 0).all() and (last.sum(-1) - 1).abs().amax() < 0.05)


def _before_projection(flow: Flow, attention: Call) -> Tensor:
    """The input of an attention's output projection: the last matrix of the attention that does not read the layer's stream."""
    inside = set(attention.module.modules())
    matrices = [call for call in flow.calls if call.module in inside and getattr(call.module, "weight", None) is not None]
    own = [call for call in matrices if call.module.weight.ndim == 2 and call.given.data_ptr() != attention.given.data_ptr()]
    if own:
        return own[-1].given
    assert attention.answer is not None
    return attention.answer  # it has no projection of its own
