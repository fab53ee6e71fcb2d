"""Rules of norm schemes, attentions and position codes, alone and at every place in a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn

from lgbench.attending import needed_inputs, visible
from lgbench.conformance.check import (
    Built,
    Outcome,
    Rules,
    accepted,
    built,
    built_or_none,
    expect,
    expect_close,
    expect_gradients,
    expect_kind,
    integers,
    kind_of,
    numbers,
    stirred,
)
from lgbench.contracts import Attention, AttentionSpec, Matrix, Need, NormScheme, Position, Role, SublayerSpec

WIDTH, HEADS, POSITIONS, LAYERS = 12, 2, 9, 3
TOKENS = 3
"""Number of token ids, as in the smallest tasks."""
MATRICES: dict[Role, tuple[Matrix, ...]] = {"attention": ("query", "key", "value", "out"), "mlp": ("up", "down")}
ATTENTION_SPECS = (
    AttentionSpec(1, 2, 7, 1, POSITIONS),  # an odd D, which rotations of pairs refuse
    AttentionSpec(2, 2, WIDTH, HEADS, POSITIONS),
    AttentionSpec(1, 1, 8, 1, POSITIONS, cross_attention=True),
)
ASKED = {1: "the last query alone", 4: "one of the last four queries without the others"}
"""Numbers of last positions that are asked for an answer."""

NORMS = Rules[[NormScheme]]()
ATTENTIONS = Rules[[Attention]]()
POSITION_CODES = Rules[[Position]]()


def _specs() -> Iterator[tuple[SublayerSpec, str]]:
    """Sublayers of the first and the last layer, since a scheme may treat them differently, each with its words."""
    for layer in (1, LAYERS):
        for role in get_args(Role):
            spec = SublayerSpec(role, layer, LAYERS, WIDTH, HEADS if role == "attention" else 1)
            yield spec, f"{role} of layer {layer}"


def _linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def _slots(scheme: NormScheme) -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    """Slot, module and input shape of every module of a scheme."""
    stream = (2, POSITIONS, WIDTH)
    yield "embed", built(partial(scheme.embed, WIDTH), what="embed"), stream
    yield "final", built(partial(scheme.final, WIDTH), what="final"), stream
    for spec, where in _specs():
        yield f"output, {where}", built(partial(scheme.output, spec), what="output"), stream
        yield f"residual, {where}", built(partial(scheme.residual, spec, built(_linear)), what="residual"), stream
        for slot in ("query", "key", "head") if spec.role == "attention" else ():
            module = built_or_none(partial(getattr(scheme, slot), spec))
            if module is not None:
                yield f"{slot}, {where}", module, (2, HEADS, POSITIONS, spec.head_dim)


@NORMS.rule("shape and dtype stay, in bfloat16 too")
def _norm_keeps_shape(scheme: NormScheme) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for where, module, shape in _slots(scheme):
            x = numbers(*shape).to(dtype)
            y = module.to(dtype)(x)
            expect_kind(f"{where}: it gives", y, shape, dtype)
            expect(y.isfinite().all(), f"{where}: {kind_of(x)} becomes something that is not finite")
            zeros = module(torch.zeros_like(x))
            expect(zeros.isfinite().all(), f"{where}: a vector of zeros becomes something that is not finite")


@NORMS.rule("each position is normalized by itself")
def _stays_in_place(scheme: NormScheme) -> None:
    for where, module, shape in _slots(scheme):
        x, other = numbers(*shape), numbers(*shape, seed=1)
        mixed = x.clone()
        mixed[1], mixed[..., 4:, :] = other[1], other[..., 4:, :]
        sentence = f"{where}: the result at one position depends on other positions or contexts"
        expect_close(module(x)[0, ..., :4, :], module(mixed)[0, ..., :4, :], sentence, 1e-6)


def _last_only() -> nn.Module:
    """Sublayer that answers for the last position only."""
    sublayer = _linear()
    sublayer.register_forward_pre_hook(lambda module, given: (given[0][..., -1:, :],))
    return sublayer


@NORMS.rule("a sublayer may answer for the last position only")
def _takes_the_last(scheme: NormScheme) -> None:
    x = numbers(2, POSITIONS, WIDTH)
    for spec, where in _specs():
        full, last = (built(partial(scheme.residual, spec, built(make))) for make in (_linear, _last_only))
        expect_close(last(x)[:, -1], full(x)[:, -1], f"residual, {where}: the last position gets something else then", 1e-6)


@NORMS.rule("gains of initial weights are finite numbers")
def _has_finite_gains(scheme: NormScheme) -> None:
    for spec, where in _specs():
        for matrix in MATRICES[spec.role]:
            gain = scheme.gain(spec, matrix)
            fits = isinstance(gain, float | int) and math.isfinite(gain)
            expect(fits, f"gain gives {gain!r} for the matrix {matrix!r}, {where}, expected a finite float")


@NORMS.rule("gradients reach every parameter")
def _norm_learns(scheme: NormScheme) -> None:
    for where, module, shape in _slots(scheme):
        expect_gradients([(module, stirred(module)(numbers(*shape)))], f"{where}: ")


def _standing(build: Callable[[AttentionSpec], Built], cross: bool = True) -> list[tuple[AttentionSpec, Built]]:
    """Accepted specs, each with the module built for the spec. Raises NotChecked if all specs are refused."""
    specs = [spec for spec in ATTENTION_SPECS if cross or not spec.cross_attention]
    return accepted(specs, build, "it refused every place in a model, such as")


def _built(attention: Attention, cross: bool = True, **changes: bool) -> list[tuple[AttentionSpec, nn.Module]]:
    """Modules in evaluation mode. `changes` are to the specs."""
    return _standing(lambda spec: stirred(built(partial(attention.build, replace(spec, **changes)))).eval(), cross)


def _arguments(attention: Attention, spec: AttentionSpec, queries: int, keys: int) -> dict[str, Any]:
    """Arguments for a call of a module. `queries` is the number of queries with an answer."""
    every = Need.ALL_QUERIES in attention.needs and not spec.cross_attention
    rows = max(queries, keys) if every else queries
    key_input = numbers(2, keys, spec.width, seed=4)
    query_input = numbers(2, queries, spec.width, seed=5) if spec.cross_attention else key_input[:, keys - queries :]
    return {
        "q": numbers(2, spec.heads, rows, spec.head_dim, seed=1),
        "k": numbers(2, spec.heads, keys, spec.head_dim, seed=2),
        "v": numbers(2, spec.heads, keys, spec.head_dim, seed=3),
        "bias": None,
    } | needed_inputs(attention.needs, query_input, key_input)


def _sizes(spec: AttentionSpec) -> tuple[tuple[int, int], ...]:
    """Numbers of queries and keys."""
    many = ((1, POSITIONS), (1, 65))  # more keys than in training
    return ((1, 1), *many) if spec.cross_attention else ((1, 1), (POSITIONS, POSITIONS), *many)


def _call(module: nn.Module, given: dict[str, Any]) -> Tensor:
    """Output for q, k, v and bias by position, as in architectures."""
    q, k, v, bias, *needed = given
    answer: Tensor = module(*(given[name] for name in (q, k, v, bias)), **{name: given[name] for name in needed})
    return answer


@ATTENTIONS.rule("shape and dtype are those of the queries, for one key and for many")
def _attention_keeps_shape(attention: Attention) -> None:
    # A module that gets all queries learns from QUERY_INPUT how many of them are asked; without it, it answers for all.
    knows_asked = Need.ALL_QUERIES not in attention.needs or Need.QUERY_INPUT in attention.needs
    for spec, module in _built(attention):
        for queries, keys in _sizes(spec):
            given, where = _arguments(attention, spec, queries, keys), f"with Q = {queries} and K = {keys} it gives"
            y = _call(module, given)
            expect_kind(where, y, (2, spec.heads, queries if knows_asked else given["q"].shape[2], spec.head_dim))
            expect(y.isfinite().all(), f"{where} something that is not finite")


@ATTENTIONS.rule("queries do not see later keys")
def _attention_is_causal(attention: Attention) -> None:
    for spec, module in _built(attention, cross=False):
        now = POSITIONS // 2
        given = _arguments(attention, spec, POSITIONS, POSITIONS)
        other = {name: value if value is None else value.clone() for name, value in given.items()}
        for value in other.values():
            if value is not None:
                value[..., now:, :] += 1.5
        sentence = f"the first {now} queries take something else if what comes after them changes"
        expect_close(_call(module, given)[:, :, :now], _call(module, other)[:, :, :now], sentence, 1e-5)


@ATTENTIONS.rule("the last queries alone get what they get among others")
def _answers_the_last(attention: Attention) -> None:
    for spec, module in _built(attention, cross=False):
        given = _arguments(attention, spec, POSITIONS, POSITIONS)
        for asked, sentence in ASKED.items():
            kept = {Need.QUERY_INPUT.value} if Need.ALL_QUERIES in attention.needs else {Need.QUERY_INPUT.value, "q"}
            last = {name: value[..., -asked:, :] if name in kept else value for name, value in given.items()}
            expected = _call(module, given)[:, :, -asked:]
            expect_close(_call(module, last)[:, :, -asked:], expected, f"{sentence} takes something else", 1e-5)


@ATTENTIONS.rule("a bias of zeros changes nothing, another something, and that of a context acts on that context")
def _takes_a_bias(attention: Attention) -> None:
    for spec, module in _built(attention, has_bias=True):
        given = _arguments(attention, spec, *_sizes(spec)[1])
        shape = (spec.heads, given["q"].shape[-2], given["k"].shape[-2])
        plain, bias = _call(module, given), numbers(2, *shape, seed=6)
        for zeros in (torch.zeros(shape), torch.zeros(1, 1, shape[2]), torch.zeros(shape[0], 1, 1), torch.zeros(2, *shape)):
            sentence = f"with a bias of zeros, {tuple(zeros.shape)}, it gives something else than without"
            expect_close(_call(module, given | {"bias": zeros}), plain, sentence, 1e-5)
        together, *alone = (_call(module, given | {"bias": each}) for each in (bias, *bias))
        moved = not torch.equal(alone[0], plain)
        expect(moved, "a bias changes nothing: raise Unsupported for a spec with `has_bias` if it takes none")
        for context, own in enumerate(alone):
            sentence = f"context {context} takes something else than where all have its bias"
            expect_close(together[context], own[context], sentence, 1e-5)


@ATTENTIONS.rule("logits are scaled as `spec.scale` says")
def _scales(attention: Attention) -> Outcome:
    unscaled = dict(_built(attention, unscaled=True))
    for spec, module in _built(attention):
        given = _arguments(attention, spec, *_sizes(spec)[1])
        if spec in unscaled and torch.allclose(_call(unscaled[spec], given), _call(module, given), atol=1e-5):
            return "it does not use spec.scale, the factor of q . k: right only for an attention without dot products"
    return None


@ATTENTIONS.rule("gradients reach every parameter")
def _attention_learns(attention: Attention) -> None:
    expect_gradients(
        (module, _call(module.train(), _arguments(attention, spec, *_sizes(spec)[1]))) for spec, module in _built(attention)
    )


class Acts:
    """Modules of a position code for one spec, in evaluation mode, called as in architectures."""

    def __init__(self, position: Position, spec: AttentionSpec) -> None:
        self.reads_tokens = position.reads_tokens
        self.ids: Tensor | None = None
        """Position ids of a task, (B, K); None for a task without ids."""
        methods: dict[str, Callable[[], object]] = {
            "embed": partial(position.embed, spec.width, POSITIONS),
            "rotate": partial(position.rotate, spec),
            "bias": partial(position.bias, spec),
        }
        found = {name: built_or_none(method) for name, method in methods.items()}
        self.modules = {name: stirred(module).eval() for name, module in found.items() if module is not None}

    def __call__(self, method: str, *given: Tensor, tokens: Tensor) -> Any:
        named = ({"tokens": tokens} if self.reads_tokens else {}) | ({} if self.ids is None else {"positions": self.ids})
        return self.modules[method](*given, **named)

    def results(self, x: Tensor, q: Tensor, k: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """Results by what they are, contexts first and positions of the queries next to last. A bias is expanded.

        Keys after a query count as 0 in a bias: the attention hides them.
        """
        found: dict[str, Tensor] = {}
        if "embed" in self.modules:
            found["embed"] = self("embed", x, tokens=tokens)
        if "rotate" in self.modules:
            found["rotate, queries"], found["rotate, keys"] = self("rotate", q, k, tokens=tokens)
        if "bias" in self.modules:
            bias = self("bias", q, k, tokens=tokens).expand(*q.shape[:3], k.shape[2])
            found["bias"] = bias.where(visible(q, k), 0)
        return found


def _acting(position: Position) -> list[tuple[AttentionSpec, Acts]]:
    """Position code for each accepted spec of self-attention. Raises NotChecked if all specs are refused."""
    return _standing(partial(Acts, position), cross=False)


def _given(spec: AttentionSpec, length: int = POSITIONS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Embeddings, queries, keys and token ids of two contexts."""
    q, k = (numbers(2, spec.heads, length, spec.head_dim, seed=seed) for seed in (1, 2))
    return numbers(2, length, spec.width), q, k, integers(TOKENS, 2, length, seed=3)


@POSITION_CODES.rule("shapes stay, and a bias has a number for every query and key")
def _position_keeps_shape(position: Position) -> Outcome:
    found = _acting(position)
    for spec, acts in found:
        for queries, keys in ((1, 1), (POSITIONS, POSITIONS), (1, 65)):
            x, q, k, tokens = _given(spec, keys)
            q = q[:, :, keys - queries :]
            if "embed" in acts.modules and keys <= POSITIONS:
                expect_kind("embed gives", acts("embed", x, tokens=tokens), x.shape)
            if "rotate" in acts.modules:
                for before, after in zip((q, k), acts("rotate", q, k, tokens=tokens), strict=True):
                    expect_kind("rotate gives", after, before.shape)
            if "bias" in acts.modules:
                _require_bias(acts("bias", q, k, tokens=tokens), (2, spec.heads, queries, keys))
    nothing = not any(acts.modules for _, acts in found)
    return "it does nothing in any of the places that were tried: right only for no position code" if nothing else None


def _require_bias(bias: Tensor, shape: tuple[int, ...]) -> None:
    fits = bias.ndim <= 4 and all(a in (1, b) for a, b in zip(bias.shape[::-1], shape[::-1], strict=False))
    expect(fits, f"bias is {tuple(bias.shape)}, expected {shape[1:]}, or {shape} with a bias for each context")
    expect(bias.isfinite().all(), "some of the bias is not finite; the attention itself hides later keys")


@POSITION_CODES.rule("a token's position does not depend on what follows")
def _position_is_causal(position: Position) -> None:
    now = POSITIONS // 2
    for spec, acts in _acting(position):
        x, q, k, tokens = _given(spec)
        among = acts.results(x, q, k, tokens)
        for what, alone in acts.results(x[:, :now], q[:, :, :now], k[:, :, :now], tokens[:, :now]).items():
            first = among[what][..., :now, : alone.shape[-1]]
            expect_close(alone, first, f"{what}: the first positions change if more tokens follow")


@POSITION_CODES.rule("the last queries have the positions that they have among others")
def _places_the_last(position: Position) -> None:
    for spec, acts in _acting(position):
        x, q, k, tokens = _given(spec)
        among = acts.results(x, q, k, tokens)
        for asked, sentence in ASKED.items():
            for what, found in acts.results(x, q[:, :, -asked:], k, tokens).items():
                expected = among[what][..., -found.shape[-2] :, :]
                expect_close(found, expected, f"{what}: {sentence} gets another result")


@POSITION_CODES.rule("each context has its own positions")
def _keeps_contexts_apart(position: Position) -> None:
    for spec, acts in _acting(position):
        given = _given(spec)
        together = acts.results(*given)
        for context in (slice(0, 1), slice(1, 2)):
            for what, alone in acts.results(*(tensor[context] for tensor in given)).items():
                expect_close(alone, together[what][context], f"{what}: its result depends on the contexts beside it")


@POSITION_CODES.rule("position ids stand for places", when=lambda position: position.reads_positions)
def _reads_ids(position: Position) -> Outcome:
    """Ids that count the places change nothing, other ids something, and only in the context that has them."""
    places, unmoved = torch.arange(POSITIONS).repeat(2, 1), dict[str, None]()
    for spec, acts in _acting(position):
        given = _given(spec)
        plain = acts.results(*given)
        acts.ids = places
        for what, found in acts.results(*given).items():
            expect_close(found, plain[what], f"{what}: with the ids 0, 1, 2, ... it gives something else than without ids")
        acts.ids = torch.stack((places[0], places[1] * 2 % POSITIONS))
        moved = acts.results(*given)
        for what, found in moved.items():
            expect_close(found[:1], plain[what][:1], f"{what}: the ids of a context change the result of another")
        same = [what for what in plain if torch.equal(moved[what], plain[what])]
        expect(len(same) < len(plain) or not plain, "it declares reads_positions, and other ids change nothing")
        unmoved |= dict.fromkeys(same)
    return f"other ids do not change {', '.join(unmoved)}: right only without a position there" if unmoved else None
