"""Checks of norm schemes, attentions and position codes, alone and at every place in a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor, nn

from lgbench.attending import needed_inputs
from lgbench.conformance.check import (
    Checks,
    NotChecked,
    Outcome,
    built,
    built_or_none,
    expect,
    expect_close,
    expect_gradients,
    integers,
    kind_of,
    numbers,
    stirred,
)
from lgbench.contracts import (
    Attention,
    AttentionSpec,
    Matrix,
    Need,
    NormScheme,
    Position,
    Role,
    SublayerSpec,
    TensorModule,
)

WIDTH, HEADS, POSITIONS, LAYERS = 12, 2, 9, 3
TOKENS = 3
"""Number of token ids, as in the smallest tasks."""
MATRICES: dict[Role, tuple[Matrix, ...]] = {"attention": ("query", "key", "value", "out"), "mlp": ("up", "down")}
ATTENTION_SPECS = (
    AttentionSpec(1, 2, 7, 1, POSITIONS),
    AttentionSpec(2, 2, WIDTH, HEADS, POSITIONS),
    AttentionSpec(1, 1, 8, 1, POSITIONS, cross_attention=True),
)
ASKED = {1: "the last query alone", 4: "one of the last four queries without the others"}
"""Numbers of last positions that are asked for an answer."""

Built = TypeVar("Built")


def checks_of_norm(scheme: NormScheme) -> Checks:
    return {
        "shape and dtype stay, in bfloat16 too": lambda: _norm_keeps_shape(scheme),
        "each position is normalized by itself": lambda: _stays_in_place(scheme),
        "a sublayer may answer for the last position only": lambda: _takes_the_last(scheme),
        "gains of initial weights are finite numbers": lambda: _has_finite_gains(scheme),
        "gradients reach every parameter": lambda: _norm_learns(scheme),
    }


def checks_of_attention(attention: Attention) -> Checks:
    return {
        "shape and dtype are those of the queries, for one key and for many": lambda: _attention_keeps_shape(attention),
        "queries do not see later keys": lambda: _attention_is_causal(attention),
        "the last queries alone get what they get among others": lambda: _answers_the_last(attention),
        "a bias of zeros changes nothing, and another something": lambda: _takes_a_bias(attention),
        "a bias for each context acts on that context": lambda: _takes_a_bias_for_each_context(attention),
        "logits are scaled as `spec.scale` says": lambda: _scales(attention),
        "gradients reach every parameter": lambda: _attention_learns(attention),
    }


def checks_of_position(position: Position) -> Checks:
    return {
        "shapes stay, and a bias has a number for every query and key": lambda: _position_keeps_shape(position),
        "a token's position does not depend on what follows": lambda: _position_is_causal(position),
        "the last queries have the positions that they have among others": lambda: _places_the_last(position),
        "each context has its own positions": lambda: _keeps_contexts_apart(position),
    } | ({"position ids stand for places": lambda: _reads_ids(position)} if position.reads_positions else {})


def _specs() -> Iterator[SublayerSpec]:
    """Sublayers of the first and the last layer, since a scheme may treat them differently."""
    for layer in (1, LAYERS):
        for role in get_args(Role):
            yield SublayerSpec(role, layer, LAYERS, WIDTH, HEADS if role == "attention" else 1)


def _linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def _slots(scheme: NormScheme) -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    """Slot, module and input shape of every module of a scheme."""
    stream = (2, POSITIONS, WIDTH)
    yield "embed", built(lambda: scheme.embed(WIDTH), what="embed"), stream
    yield "final", built(lambda: scheme.final(WIDTH), what="final"), stream
    for spec in _specs():
        where = f"{spec.role} of layer {spec.layer}"
        yield f"output, {where}", built(lambda spec=spec: scheme.output(spec), what="output"), stream  # type: ignore[misc]
        yield f"residual, {where}", built(lambda spec=spec: scheme.residual(spec, _linear()), what="residual"), stream  # type: ignore[misc]
        if spec.role == "attention":
            for slot, method in (("query", scheme.query), ("key", scheme.key), ("head", scheme.head)):
                module = built_or_none(lambda method=method, spec=spec: method(spec))  # type: ignore[misc]
                if module is not None:
                    yield f"{slot}, {where}", module, (2, HEADS, POSITIONS, spec.head_dim)


def _norm_keeps_shape(scheme: NormScheme) -> Outcome:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for where, module, shape in _slots(scheme):
            x = numbers(*shape).to(dtype)
            y = module.to(dtype)(x)
            fits = y.shape == x.shape and y.dtype == x.dtype
            expect(fits, f"{where}: {kind_of(x)} becomes {kind_of(y)}, and both should stay")
            expect(bool(y.isfinite().all()), f"{where}: {kind_of(x)} becomes something that is not finite")
            zeros = module(torch.zeros_like(x))
            expect(bool(zeros.isfinite().all()), f"{where}: a vector of zeros becomes something that is not finite")
    return None


def _stays_in_place(scheme: NormScheme) -> Outcome:
    for where, module, shape in _slots(scheme):
        x, other = numbers(*shape), numbers(*shape, seed=1)
        mixed = x.clone()
        mixed[1], mixed[..., 4:, :] = other[1], other[..., 4:, :]
        sentence = f"{where}: the result at one position depends on other positions or contexts"
        expect_close(module(x)[0, ..., :4, :], module(mixed)[0, ..., :4, :], sentence, 1e-6)
    return None


class LastOnly(nn.Module):
    """Sublayer that answers for the last position only."""

    def __init__(self, sublayer: TensorModule) -> None:
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x: Tensor) -> Tensor:
        return self.sublayer(x[..., -1:, :])


def _takes_the_last(scheme: NormScheme) -> Outcome:
    x = numbers(2, POSITIONS, WIDTH)
    for spec in _specs():
        full = built(lambda spec=spec: scheme.residual(spec, _linear()))  # type: ignore[misc]
        last = built(lambda spec=spec: scheme.residual(spec, LastOnly(_linear())))  # type: ignore[misc]
        sentence = f"residual, {spec.role} of layer {spec.layer}: the last position gets something else then"
        expect_close(last(x)[:, -1], full(x)[:, -1], sentence, 1e-6)
    return None


def _has_finite_gains(scheme: NormScheme) -> Outcome:
    for spec in _specs():
        for matrix in MATRICES[spec.role]:
            gain = scheme.gain(spec, matrix)
            fits = isinstance(gain, float | int) and math.isfinite(gain)
            where = f"the matrix {matrix!r}, {spec.role} of layer {spec.layer}"
            expect(fits, f"gain gives {gain!r} for {where}, expected a finite float")
    return None


def _norm_learns(scheme: NormScheme) -> Outcome:
    for where, module, shape in _slots(scheme):
        expect_gradients([(module, stirred(module)(numbers(*shape)))], f"{where}: ")
    return None


def _standing(build: Callable[[AttentionSpec], Built], cross: bool = True) -> list[tuple[AttentionSpec, Built]]:
    """Accepted specs, each with the module built for the spec. Raises NotChecked if all specs are refused."""
    found, reasons = [], []
    for spec in ATTENTION_SPECS:
        try:
            if cross or not spec.cross_attention:
                found.append((spec, build(spec)))
        except NotChecked as refusal:
            reasons.append(str(refusal))
    if not found:
        raise NotChecked(f"it refused every place in a model, such as: {reasons[0]}")
    return found


def _built(attention: Attention, cross: bool = True, **changes: bool) -> list[tuple[AttentionSpec, nn.Module]]:
    """Modules in evaluation mode. `changes` are to the specs."""
    return _standing(lambda spec: stirred(built(lambda: attention.build(replace(spec, **changes)))).eval(), cross)


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
    many = ((1, POSITIONS), (1, 65))
    return ((1, 1), *many) if spec.cross_attention else ((1, 1), (POSITIONS, POSITIONS), *many)


def _call(module: nn.Module, given: dict[str, Any]) -> Tensor:
    """Output for q, k, v and bias by position, as in architectures."""
    needed = {name: value for name, value in given.items() if name not in ("q", "k", "v", "bias")}
    answer: Tensor = module(given["q"], given["k"], given["v"], given["bias"], **needed)
    return answer


def _attention_keeps_shape(attention: Attention) -> Outcome:
    # A module that gets all queries learns from QUERY_INPUT how many of them are asked; without it, it answers for all.
    knows_asked = Need.ALL_QUERIES not in attention.needs or Need.QUERY_INPUT in attention.needs
    for spec, module in _built(attention):
        for queries, keys in _sizes(spec):
            given = _arguments(attention, spec, queries, keys)
            y = _call(module, given)
            shape = (2, spec.heads, queries if knows_asked else given["q"].shape[2], spec.head_dim)
            fits = y.shape == shape and y.dtype == torch.float32
            expect(fits, f"with Q = {queries} and K = {keys} it gives {kind_of(y)}, expected {shape} float32")
            expect(bool(y.isfinite().all()), f"with Q = {queries} and K = {keys} it gives something that is not finite")
    return None


def _attention_is_causal(attention: Attention) -> Outcome:
    for spec, module in _built(attention, cross=False):
        now = POSITIONS // 2
        given = _arguments(attention, spec, POSITIONS, POSITIONS)
        other = {name: value if value is None else value.clone() for name, value in given.items()}
        for name, value in other.items():
            if value is not None:
                later = value[:, :, now:] if name in ("q", "k", "v") else value[:, now:]
                later.add_(1.5)
        sentence = f"the first {now} queries take something else if what comes after them changes"
        expect_close(_call(module, given)[:, :, :now], _call(module, other)[:, :, :now], sentence, 1e-5)
    return None


def _answers_the_last(attention: Attention) -> Outcome:
    for spec, module in _built(attention, cross=False):
        given = _arguments(attention, spec, POSITIONS, POSITIONS)
        for asked, sentence in ASKED.items():
            last = given | {name: given[name][:, -asked:] for name in (Need.QUERY_INPUT.value,) if name in given}
            if Need.ALL_QUERIES not in attention.needs:
                last["q"] = given["q"][:, :, -asked:]
            expected = _call(module, given)[:, :, -asked:]
            expect_close(_call(module, last)[:, :, -asked:], expected, f"{sentence} takes something else", 1e-5)
    return None


def _takes_a_bias(attention: Attention) -> Outcome:
    for spec, module in _built(attention, has_bias=True):
        queries, keys = _sizes(spec)[1]
        given = _arguments(attention, spec, queries, keys)
        expected, shape = _call(module, given), (spec.heads, given["q"].shape[-2], keys)
        for zeros in (torch.zeros(shape), torch.zeros(1, 1, keys), torch.zeros(shape[0], 1, 1), torch.zeros(2, *shape)):
            sentence = f"with a bias of zeros, {tuple(zeros.shape)}, it gives something else than without"
            expect_close(_call(module, given | {"bias": zeros}), expected, sentence, 1e-5)
        moved = not torch.equal(_call(module, given | {"bias": numbers(*shape, seed=6)}), expected)
        expect(moved, "a bias changes nothing: raise Unsupported for a spec with `has_bias` if it takes none")
    return None


def _takes_a_bias_for_each_context(attention: Attention) -> Outcome:
    for spec, module in _built(attention, has_bias=True):
        queries, keys = _sizes(spec)[1]
        given = _arguments(attention, spec, queries, keys)
        bias = numbers(2, spec.heads, given["q"].shape[-2], keys, seed=6)
        together = _call(module, given | {"bias": bias})
        for context in range(2):
            alone = _call(module, given | {"bias": bias[context]})[context]
            expect_close(together[context], alone, f"context {context} takes something else than where all have its bias", 1e-5)
    return None


def _scales(attention: Attention) -> Outcome:
    for (spec, module), (_, plain) in zip(_built(attention), _built(attention, unscaled=True), strict=True):
        given = _arguments(attention, spec, *_sizes(spec)[1])
        if torch.allclose(_call(plain, given), _call(module, given), atol=1e-5):
            return "it does not use spec.scale, the factor of q . k: right only for an attention without dot products"
    return None


def _attention_learns(attention: Attention) -> Outcome:
    expect_gradients(
        (module, _call(module.train(), _arguments(attention, spec, *_sizes(spec)[1]))) for spec, module in _built(attention)
    )
    return None


class Acts:
    """Modules of a position code for one spec, in evaluation mode, called as in architectures."""

    def __init__(self, position: Position, spec: AttentionSpec) -> None:
        self.reads_tokens = position.reads_tokens
        self.ids: Tensor | None = None
        """Position ids of a task, (B, K); None for a task without ids."""
        methods: dict[str, Callable[[], object]] = {
            "embed": lambda: position.embed(spec.width, POSITIONS),
            "rotate": lambda: position.rotate(spec),
            "bias": lambda: position.bias(spec),
        }
        found = {name: built_or_none(method) for name, method in methods.items()}
        self.modules = {name: stirred(module).eval() for name, module in found.items() if module is not None}

    def __call__(self, method: str, *given: Tensor, tokens: Tensor) -> Any:
        named = ({"tokens": tokens} if self.reads_tokens else {}) | ({} if self.ids is None else {"positions": self.ids})
        return self.modules[method](*given, **named)

    def results(self, x: Tensor, q: Tensor, k: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """Results by what they are, contexts first and positions of the queries next to last. A bias is expanded."""
        found: dict[str, Tensor] = {}
        if "embed" in self.modules:
            found["embed"] = self("embed", x, tokens=tokens)
        if "rotate" in self.modules:
            found["rotate, queries"], found["rotate, keys"] = self("rotate", q, k, tokens=tokens)
        if "bias" in self.modules:
            found["bias"] = self("bias", q, k, tokens=tokens).expand(*q.shape[:3], k.shape[2])
        return found


def _acting(position: Position) -> Iterable[tuple[AttentionSpec, Acts]]:
    """Position code for each accepted spec of self-attention. Raises NotChecked if all specs are refused."""
    return _standing(lambda spec: Acts(position, spec), cross=False)


def _given(spec: AttentionSpec, length: int = POSITIONS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Embeddings, queries, keys and token ids of two contexts."""
    shape = (2, spec.heads, length, spec.head_dim)
    return (
        numbers(2, length, spec.width),
        numbers(*shape, seed=1),
        numbers(*shape, seed=2),
        integers(TOKENS, 2, length, seed=3),
    )


def _position_keeps_shape(position: Position) -> Outcome:
    found = _acting(position)
    for spec, acts in found:
        for queries, keys in ((1, 1), (POSITIONS, POSITIONS), (1, 65)):
            x, q, k, tokens = _given(spec, keys)
            q = q[:, :, keys - queries :]
            if "embed" in acts.modules and keys <= POSITIONS:
                y = acts("embed", x, tokens=tokens)
                fits = y.shape == x.shape and y.dtype == x.dtype
                expect(fits, f"embed: {kind_of(x)} becomes {kind_of(y)}, and both should stay")
            if "rotate" in acts.modules:
                for before, after in zip((q, k), acts("rotate", q, k, tokens=tokens), strict=True):
                    kinds = f"{tuple(before.shape)} becomes {tuple(after.shape)}"
                    expect(after.shape == before.shape, f"rotate: {kinds}, and both queries and keys should stay")
            if "bias" in acts.modules:
                _require_bias(acts("bias", q, k, tokens=tokens), (2, spec.heads, queries, keys))
    nothing = not any(acts.modules for _, acts in found)
    return "it does nothing in any of the places that were tried: right only for no position code" if nothing else None


def _require_bias(bias: Tensor, shape: tuple[int, ...]) -> None:
    fits = bias.ndim <= 4 and all(a in (1, b) for a, b in zip(bias.shape[::-1], shape[::-1], strict=False))
    expect(fits, f"bias is {tuple(bias.shape)}, expected {shape[1:]}, or {shape} with a bias for each context")
    expect(bool(bias.isfinite().all()), "some of the bias is not finite; the attention itself hides later keys")


def _position_is_causal(position: Position) -> Outcome:
    now = POSITIONS // 2
    seen = torch.ones(now, now, dtype=torch.bool).tril()
    for spec, acts in _acting(position):
        x, q, k, tokens = _given(spec)
        among = acts.results(x, q, k, tokens)
        for what, alone in acts.results(x[:, :now], q[:, :, :now], k[:, :, :now], tokens[:, :now]).items():
            first = among[what][..., :now, :]
            if what == "bias":
                alone, first = alone.where(seen, 0), first[..., :now].where(seen, 0)
            expect_close(alone, first, f"{what}: the first positions change if more tokens follow")
    return None


def _places_the_last(position: Position) -> Outcome:
    for spec, acts in _acting(position):
        x, q, k, tokens = _given(spec)
        among = acts.results(x, q, k, tokens)
        for asked, sentence in ASKED.items():
            for what, found in acts.results(x, q[:, :, -asked:], k, tokens).items():
                expected = among[what] if what in ("embed", "rotate, keys") else among[what][..., -asked:, :]
                expect_close(found, expected, f"{what}: {sentence} gets another result")
    return None


def _keeps_contexts_apart(position: Position) -> Outcome:
    for spec, acts in _acting(position):
        given = _given(spec)
        together = acts.results(*given)
        for context in (slice(0, 1), slice(1, 2)):
            for what, alone in acts.results(*(tensor[context] for tensor in given)).items():
                expect_close(alone, together[what][context], f"{what}: its result depends on the contexts beside it")
    return None


def _reads_ids(position: Position) -> Outcome:
    """Ids that count the places change nothing, other ids something, and only in the context that has them."""
    places, seen = torch.arange(POSITIONS).repeat(2, 1), torch.ones(POSITIONS, POSITIONS, dtype=torch.bool).tril()

    def visible(results: dict[str, Tensor]) -> dict[str, Tensor]:
        return {what: found.where(seen, 0) if what == "bias" else found for what, found in results.items()}

    for spec, acts in _acting(position):
        given = _given(spec)
        plain = visible(acts.results(*given))
        acts.ids = places
        for what, found in visible(acts.results(*given)).items():
            expect_close(found, plain[what], f"{what}: with the ids 0, 1, 2, ... it gives something else than without ids")
        acts.ids = torch.stack((places[0], places[1] * 2 % POSITIONS))
        moved = visible(acts.results(*given))
        acts.ids = None
        for what, found in moved.items():
            expect_close(found[:1], plain[what][:1], f"{what}: the ids of a context change the result of another")
        changed = any(not torch.equal(moved[what], plain[what]) for what in plain)
        expect(changed or not plain, "it declares reads_positions, and other ids change nothing")
    return None
