"""Sights: collectors of a model's internals at chosen positions of contexts, and attention weights through linearity.

A model from parts is built again with recorded modules. The trained model stays untouched; the new one has the same parameter
names, so trained weights fit. Packs see models with layers of other libraries.

The output of a query is linear in the values: W v, with weights W. For the identity as v the output is W, in K features. The
gradient of one output feature with respect to the values is also W, in one pass instead of K. Tests compare both ways.

Shapes: n contexts (B in weights), T positions, W the width of the residual stream; in attention H heads of D features, K keys.
A place is a position counted from the end: 0 is the last position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from functools import partial
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionInternals, AttentionSpec, Need, Role, SublayerInternals, SublayerSpec
from lgbench.errors import lacks_memory
from lgbench.experiment.experiment import recorded

Take = Callable[[Tensor], Tensor]
"""Output of one query as a function of the values: (B, H, K, D) -> (B, H, 1, D)."""

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.05}
"""Largest distance between a query's output and weights times values, by precision, relative to :func:`scale`."""


def attention_weights(take: Take, v: Tensor, tolerance: float, try_others: bool = True) -> Tensor | None:
    """Attention weights of the query, (B, H, K); None where the output is not linear in the values.

    `try_others`: whether linearity is also checked with other values. Weights are NaN where the output is not finite.
    """
    try:
        with torch.enable_grad():  # models are tested without gradients
            given = v.detach().requires_grad_()
            taken = take(given)
            (gradient,) = torch.autograd.grad(taken[..., 0].sum(), given)
    except Exception as error:  # a plugin may raise any error for a tensor with gradients
        if isinstance(error, RuntimeError) and lacks_memory(error):
            raise
        return None
    weights = gradient[..., 0]
    size = scale(weights, v)  # not finite where a weight is not
    finite = (taken.detach().isfinite().flatten(2).all(2) & size.isfinite()).all(1)
    chosen = slice(None) if finite.all() else finite  # a mask copies
    rounding = size[chosen] * tolerance
    pairs = [(v, taken.detach())]
    if try_others:
        # Of similar size: each from another key, with opposite sign and another mean.
        others = v[..., :1, :1].abs() / 2 - v.roll(1, -2)
        pairs.append((others, take(others)))
    if not all(agrees(weights[chosen], values[chosen], found[chosen], rounding) for values, found in pairs):
        return None
    return torch.where(finite[:, None, None], weights, torch.nan)


def scale(weights: Tensor, values: Tensor) -> Tensor:
    """Sum of absolute weights times the largest absolute value, (B, H) float32: the scale of rounding errors."""
    own = values.flatten(-2)  # the two at once, aminmax, are many times slower along a dimension
    return (weights.abs().sum(-1) * torch.maximum(own.amax(-1), -own.amin(-1))).float()


def agrees(weights: Tensor, values: Tensor, taken: Tensor, rounding: Tensor) -> bool:
    """Whether weights (B, H, K) times values equal the output `taken`, within the error `rounding` (B, H)."""
    if not len(weights):
        return True
    apart = (weights[..., None, :].float() @ values.float() - taken.float()).abs().amax((-2, -1))
    return bool((apart <= rounding + 1e-9).all())


class Seen(NamedTuple):
    """Internals at one place, as the last fields of :class:`lgbench.Internals`."""

    attentions: tuple[AttentionInternals, ...]
    sublayers: tuple[SublayerInternals, ...]
    final: Tensor | None


class Sight:
    """Collector of a model's internals by place, within :meth:`watching`. This class sees nothing; subclasses add hooks."""

    last_alone = False
    """Whether the sight is limited to the last position."""

    def __init__(self, model: nn.Module, where: torch.device, tolerance: float) -> None:
        """`where`: device of the kept tensors. `tolerance`: as for :func:`attention_weights`."""
        self.model, self.where, self.tolerance = model, where, tolerance
        self.not_linear: set[int] = set()
        """Attention layers with undefined weights, which are not computed again."""
        self._tried: set[int] = set()
        """Layers already checked for linearity with other values."""
        self._places: Sequence[int] = (0,)
        self._attentions: dict[int, list[AttentionInternals]] = defaultdict(list)
        self._sublayers: dict[int, list[SublayerInternals]] = defaultdict(list)
        self._finals: dict[int, Tensor] = {}
        self._norm_inputs: dict[int, dict[int, Tensor]] = {}

    def watching(self) -> AbstractContextManager[None]:
        """Context in which the model's internals are collected."""
        return nullcontext()

    def begin(self, places: Sequence[int] = (0,)) -> None:
        """Forget earlier contexts and choose the places of the next forward pass."""
        self._places = places
        for found in (self._attentions, self._sublayers, self._finals, self._norm_inputs):
            found.clear()

    def at(self, place: int) -> Seen:
        """Return the internals at a place."""
        return Seen(tuple(self._attentions[place]), tuple(self._sublayers[place]), self._finals.get(place))

    def _see_query(self, layer: int, place: int, output: Tensor, weights_of: Callable[[bool], Tensor | None]) -> None:
        """Keep the output of a query, (n, H, D), and its weights, (n, H, K), where weights are defined.

        `weights_of`: function from `try_others` of :func:`attention_weights` to the weights. Other values are tried in the
        first contexts alone: a check costs as much as the weights.
        """
        weights = None
        if layer not in self.not_linear:
            weights = weights_of(layer not in self._tried)
            self._tried.add(layer)
            if weights is None:
                self.not_linear.add(layer)
        known = None if weights is None else self._kept(weights)
        self._attentions[place].append(AttentionInternals(layer, self._kept(output), known))

    def _see_norm(self, number: int, module: nn.Module, given: tuple[Any, ...]) -> None:
        """Hook of a sublayer's norm. Keeps the input of the norm that ran last."""
        self._norm_inputs[number] = self._at_places(given[0])

    def _add_sublayer(self, number: int, role: Role, layer: int, before: Tensor | None, after: Tensor) -> None:
        """Keep a sublayer, with the residual stream (n, T, W) before and after."""
        befores = {} if before is None else self._at_places(before)
        norm_inputs = self._norm_inputs.pop(number, {})
        for place, own in self._at_places(after).items():
            self._sublayers[place].append(SublayerInternals(role, layer, befores.get(place), own, norm_inputs.get(place)))

    def _see_final(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        """Hook of the norm before the logits."""
        self._finals.update(self._at_places(given[0]))

    def _at_places(self, x: Tensor) -> dict[int, Tensor]:
        """Vectors (n, W) by place, from (n, T, W)."""
        return {place: self._kept(x[:, -1 - place]) for place in self._places if place < x.shape[1]} if x.ndim == 3 else {}

    def _kept(self, x: Tensor) -> Tensor:
        return x.detach().to(self.where).double()


def joined(parts: Sequence[Any], chosen: Tensor) -> Any:
    """Tensors of the chosen contexts, from parts of a batch: tensors, or structures of tensors. None if a part is None."""
    first = parts[0]
    if any(part is None for part in parts):
        return None
    if isinstance(first, Tensor):
        # Without a copy where all are chosen: in another layout of memory, sums would round differently.
        return first if len(parts) == 1 and len(chosen) == len(first) else torch.cat(list(parts))[chosen]
    if isinstance(first, tuple):
        return tuple(joined(own, chosen) for own in zip(*parts, strict=True))
    if is_dataclass(first) and not isinstance(first, type):
        own = {field.name: joined([getattr(part, field.name) for part in parts], chosen) for field in fields(first)}
        return replace(first, **own)
    return first


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
    """Sees a model that is built from parts of lgbench; of several passes through all of its layers, the last."""

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
        own = {} if norm is None else {"norm": recorded(norm, residual=residual, output=output, final=final)}
        if attention is not None:
            own["attention"] = recorded(attention, build=attend)
            self.needs: frozenset[Need] = attention.needs
        super().__init__(build({**parts, **own}), where, tolerance)
        inside = set(self.model.modules())  # a method may have been called for a module that is not used
        self.attentions = {module: spec for module, spec in attentions.items() if module in inside}
        self.sublayers = [each for each in sublayers if each.module in inside]
        self.finals = [each for each in finals if each in inside]
        """Norms before the logits: at most one."""
        self._called: set[nn.Module] = set()
        """Modules that were called in the present pass through the layers."""

    def begin(self, places: Sequence[int] = (0,)) -> None:
        super().begin(places)
        self._called.clear()

    def _see_call(self, module: nn.Module) -> None:
        """Forget the readings of an earlier pass where a module is called again: a model may run its layers several times."""
        if module in self._called:
            self._attentions.clear()
            self._sublayers.clear()
            self._called.clear()
        self._called.add(module)

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
        self._see_call(module)
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
        self._see_call(module)
        self._add_sublayer(number, own.spec.role, own.spec.layer, given[0] if own.is_residual else None, answer)


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
