"""Internals of decoders of `transformers`: layers, sublayers and attentions of any causal language model.

Shapes: n contexts, T positions, W the width of the residual stream; in attention H heads of D features, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionInternals, SublayerInternals
from lgbench.errors import UsageError
from lgbench.internals.sight import Sight
from lgbench_pretrained.attention import Attending, LastQuery


def sight_of(model: nn.Module, where: torch.device, tolerance: float) -> Sight | None:
    """Sight of the only decoder of transformers in a model; None for no decoder, several, or one without a list of layers."""
    try:
        return DecoderSight(model, where, tolerance)
    except UsageError:
        return None


def outermost(module: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    """Modules of a kind in a module, without modules nested in another of the same kind."""
    if isinstance(module, kind):
        return [module]
    return [found for child in module.children() for found in outermost(child, kind)]


def _layers(model: Any) -> tuple[nn.Module, ...]:
    """Decoder layers: the first module list as long as the configuration's number of layers, if possible in the text model."""
    if model.config.is_encoder_decoder:
        raise UsageError(f"{type(model).__name__} has an encoder beside its decoder, so no probe applies")
    count = model.config.get_text_config().num_hidden_layers
    for module in (*model.get_decoder().modules(), *model.modules()):  # a picture's encoder may have as many layers
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return tuple(module)
    raise UsageError(f"{type(model).__name__} has no list of {count} decoder layers, so no probe applies")


@dataclass(eq=False)
class Call:
    """Call of a module, with its first tensor argument and first returned tensor."""

    module: nn.Module
    given: Tensor
    answer: Tensor | None = None
    """None before the module has returned a tensor."""


@dataclass(eq=False)
class Flow:
    """Calls in one layer during a forward pass, with tensors such as (n, T, W), kept until the next layer begins."""

    layer: nn.Module
    number: int
    """Counted from 1."""
    before: Tensor
    """(n, T, W)."""
    where: torch.device
    """Device of the kept tensors."""
    calls: list[Call] = field(default_factory=list)
    """Calls of all modules within the layer, in the order of their beginning."""
    attended: nn.Module | None = None
    """Module of the attention."""

    def sublayers(self, after: Tensor) -> list[SublayerInternals]:
        """Sublayers of the layer at the last position. `after`: output of the layer, (n, T, W)."""
        mixer = self._mixer()
        if mixer is None:
            return []
        mlp, norms = self._mlp(mixer), self._norms(mixer)
        reads, returns = _norm_that_gave(mixer.given, norms), _norm_that_took(self._whole(mixer).answer, norms)
        if mlp is None:
            norm = returns or reads
            return [self._seen("attention", self.before, after, norm)]
        second = _norm_that_gave(mlp.given, norms)
        is_post = second is not None and _same(mixer.given, self.before)
        middle = mlp.given if second is None or is_post else second.given
        own = None if returns is second else returns  # an attention that adds the stream returns what the MLP's norm takes
        norm = second if is_post else own or reads
        if _same(middle, self.before):
            update = self._whole(mixer).answer if returns is None else returns.answer
            assert update is not None
            middle = self.before + update
        last = _norm_that_gave(after, norms) if is_post else _norm_that_took(self._whole(mlp).answer, norms) or second
        return [
            self._seen("attention", self.before, middle, norm),
            self._seen("mlp", middle, after, last),
        ]

    def _mixer(self) -> Call | None:
        """Call of the sublayer with position mixing: attention if observed, otherwise the layer's first part with weights."""
        if self.attended is not None:
            return next((call for call in self.calls if call.module is self.attended), None)
        return next(iter(self._parts()), None)

    def _mlp(self, mixer: Call) -> Call | None:
        """First part with weights after the mixer."""
        later = self.calls[self.calls.index(mixer) + 1 :]
        return next((call for call in self._parts() if call in later), None)

    def _parts(self) -> list[Call]:
        """Calls of the layer's direct children with weights, without norms."""
        own = [each for each in self.layer.children() if not is_norm(each) and any(True for _ in each.parameters())]
        return [call for call in self.calls if any(call.module is each for each in own)]

    def _whole(self, call: Call) -> Call:
        """Call of the layer's direct child around a module; the module's own call where the child has a norm beside it."""
        for other in self.calls:
            is_part = any(other.module is child for child in self.layer.children())
            if is_part and not _has_norm_outside(other.module, call.module) and _is_in(call.module, other.module):
                return other
        return call

    def _norms(self, mixer: Call) -> list[Call]:
        """Calls of norms outside of attention, without query or key norms."""
        return [call for call in self.calls if is_norm(call.module) and not _is_in(call.module, mixer.module)]

    def _seen(self, role: Any, before: Tensor, after: Tensor, norm: Call | None) -> SublayerInternals:
        known = None if norm is None else self.last(norm.given)
        return SublayerInternals(role, self.number, self.last(before), self.last(after), known)

    def last(self, x: Tensor) -> Tensor:
        """Last position, (n, W) float64, from (n, T, W) or (n * T, W)."""
        return x.detach().reshape(len(self.before), -1, x.shape[-1])[:, -1].to(self.where).double()


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm by its class name."""
    return "norm" in type(module).__name__.lower() and next(module.children(), None) is None


def _norm_that_gave(x: Tensor, norms: Sequence[Call]) -> Call | None:
    return next((call for call in norms if call.answer is not None and _same(call.answer, x)), None)


def _norm_that_took(x: Tensor | None, norms: Sequence[Call]) -> Call | None:
    return None if x is None else next((call for call in norms if _same(call.given, x)), None)


def _has_norm_outside(part: nn.Module, module: nn.Module) -> bool:
    """Whether a part has a norm outside of a module in it, and so may return other values than the module."""
    return any(is_norm(each) and not _is_in(each, module) for each in part.modules())


def _is_in(module: nn.Module, whole: nn.Module) -> bool:
    return any(module is each for each in whole.modules())


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors share all their memory, as with a view of a whole tensor."""
    return x.data_ptr() == y.data_ptr() and x.numel() == y.numel()


Given = tuple[Any, ...]
Named = Mapping[str, Any]


class DecoderSight(Sight):
    """Sight of a decoder at the last position."""

    last_alone = True

    def __init__(self, model: nn.Module, where: torch.device, tolerance: float) -> None:
        """Gives the decoder in the model the attention function of lgbench.

        Raises UsageError for a model without a decoder, with several, or with a decoder without a list of layers.
        """
        from transformers import PreTrainedModel

        super().__init__(model, where, tolerance)
        found: list[Any] = outermost(model, PreTrainedModel)
        if len(found) != 1:
            raise UsageError(f"{type(model).__name__} has {len(found)} models of transformers, expected one")
        (self.decoder,) = found
        self.layers = _layers(self.decoder)
        self.attending = Attending.of(self.decoder)
        """Function called by the attentions; None for a decoder without exchangeable attention."""
        if self.attending is None:
            self.decoder.config.output_attentions = True  # or attentions with a function of their own keep their weights
        self._flow: Flow | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context with hooks on all layers and the final norm."""
        with ExitStack() as hooks:
            for number, layer in enumerate(self.layers, 1):
                hooks.enter_context(layer.register_forward_pre_hook(partial(self._begin, number), with_kwargs=True))
                hooks.enter_context(layer.register_forward_hook(self._end))
            inside = {each for layer in self.layers for each in layer.modules()}
            for module in inside - {*self.layers}:  # layers may share a module
                hooks.enter_context(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(self._leave))
            for module in self.decoder.modules():
                if is_norm(module) and module not in inside:
                    hooks.enter_context(module.register_forward_pre_hook(self._see_outer_norm, with_kwargs=True))
            if self.attending is not None:
                hooks.enter_context(self.attending.looking(self._attend, self.tolerance))
            yield

    def begin(self, places: Sequence[int] = (0,)) -> None:
        """Forget earlier contexts, before a forward pass. `places` must be the last position alone."""
        assert tuple(places) == (0,)
        super().begin(places)
        self._flow = None

    def _begin(self, number: int, layer: nn.Module, given: Given, named: Named) -> None:
        if number == 1:  # a model may run all its layers several times, and the last pass counts
            super().begin()
        x = _first(given, named)
        self._flow = None if x is None else Flow(layer, number, x, self.where)

    def _end(self, layer: nn.Module, given: Given, answer: Any) -> None:
        flow, after = self._flow, _first((answer,), {})
        if flow is None or flow.layer is not layer or after is None:
            return
        self._sublayers[0] += flow.sublayers(after)
        flow.calls.clear()

    def _enter(self, module: nn.Module, given: Given, named: Named) -> None:
        x = _first(given, named)
        if self._flow is not None and x is not None:
            self._flow.calls.append(Call(module, x))

    def _leave(self, module: nn.Module, given: Given, answer: Any) -> Any:
        """Hook after a module. Returns a shorter answer for a module with weights of all queries."""
        flow = self._flow
        if flow is None:
            return None
        call = next((each for each in reversed(flow.calls) if each.module is module and each.answer is None), None)
        if call is None:
            return None
        call.answer = _first((answer,), {})
        return self._without_weights(flow, call, answer) if self.attending is None else None

    def _attend(self, module: nn.Module, query: LastQuery) -> None:
        """Callback of :class:`Attending` after an attention. A module that attends several times has no reading."""
        if (flow := self._flow) is None:
            return
        if flow.attended is module:
            self._attentions[0] = [own for own in self._attentions[0] if own.layer != flow.number]
            self.not_linear.add(flow.number)
            return
        flow.attended = module
        self._add(flow.number, query)

    def _without_weights(self, flow: Flow, call: Call, answer: Any) -> Any:
        """Answer of an attention with the weights of the last query alone; None for other modules.

        For models with an attention function of their own, with weights (n, H, T, K) beside the output.
        """
        if not isinstance(answer, tuple | list) or flow.attended is not None:
            return None
        queries = flow.before.shape[1]
        place = next((i for i, x in enumerate(answer) if isinstance(x, Tensor) and _are_weights(x, queries)), None)
        if place is None:
            return None
        weights = answer[place][..., -1:, :].clone()
        taken = flow.last(_before_projection(flow, call))
        flow.attended = call.module
        self._add(flow.number, LastQuery(taken.view(*weights.shape[:2], -1), weights[..., 0, :]))
        shorter = (*answer[:place], weights, *answer[place + 1 :])
        return shorter if isinstance(answer, tuple) else list(shorter)

    def _add(self, layer: int, query: LastQuery) -> None:
        if query.weights is None:
            self.not_linear.add(layer)
        weights = None if query.weights is None else self._kept(query.weights)
        self._attentions[0].append(AttentionInternals(layer, self._kept(query.output), weights))

    def _see_outer_norm(self, norm: nn.Module, given: Given, named: Named) -> None:
        """Hook of norms outside of layers: keeps the input of the first norm after the last layer, the final norm."""
        x = _first(given, named)
        if x is not None and self._flow is not None and self._flow.layer is self.layers[-1]:
            self._finals.setdefault(0, self._kept(self._flow.last(x)))


def _first(given: Given, named: Named) -> Tensor | None:
    """Hidden states: the argument of this name, or the first floating-point tensor with features, also in a tuple or list."""
    for each in (named.get("hidden_states"), *given, *named.values()):
        x = _first(tuple(each), {}) if isinstance(each, tuple | list) else each
        if isinstance(x, Tensor) and x.is_floating_point() and x.ndim >= 2:
            return x
    return None


def _are_weights(x: Tensor, queries: int) -> bool:
    """Whether a tensor has attention weights, (n, H, T, K): for the last query, non-negative with sum 1."""
    if x.ndim != 4 or x.shape[-2] != queries:
        return False
    last = x[..., -1, :].double()
    return bool((last >= 0).all() and (last.sum(-1) - 1).abs().amax() < 0.05)


def _before_projection(flow: Flow, attention: Call) -> Tensor:
    """Input of an attention's output projection: its last matrix without the layer's stream as input."""
    inside = set(attention.module.modules())
    matrices = [call for call in flow.calls if call.module in inside and getattr(call.module, "weight", None) is not None]
    own = [call for call in matrices if call.module.weight.ndim == 2 and call.given.data_ptr() != attention.given.data_ptr()]
    if own:
        return own[-1].given
    assert attention.answer is not None
    return attention.answer  # an attention without an output projection
