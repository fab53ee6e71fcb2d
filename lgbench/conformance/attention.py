"""Checks of attentions and position codes, alone and at every place in a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lgbench.attending import needed_inputs
from lgbench.conformance.check import Checks, NotChecked, Outcome, expect, expect_close
from lgbench.conformance.material import Gradients, built, built_or_none, integers, kind_of, numbers, stirred
from lgbench.contracts import Attention, AttentionSpec, Need, Position

WIDTH, POSITIONS = 12, 9
BY_POSITION = ("q", "k", "v", "bias")
Built = TypeVar("Built")

ASKED = {1: "the last query alone", 4: "one of the last four queries without the others"}
"""How many of the last positions may be asked for an answer."""

SPECS = {
    "one head of odd width": AttentionSpec(1, 2, 7, 1, POSITIONS),
    "two heads in the second layer": AttentionSpec(2, 2, WIDTH, 2, POSITIONS),
    "cross attention": AttentionSpec(1, 1, 8, 1, POSITIONS, cross_attention=True),
}


def checks_of_attention(attention: Attention) -> Checks:
    return {
        "shape and dtype are those of the queries, for one key and for many": lambda: _attention_keeps_shape(attention),
        "queries do not see later keys": lambda: _attention_does_not_leak(attention),
        "the last queries alone get what they get among others": lambda: _answers_the_last(attention),
        "a bias of zeros changes nothing, and another something": lambda: _takes_a_bias(attention),
        "a bias for each context acts on that context": lambda: _takes_a_bias_for_each_context(attention),
        "logits are scaled as `spec.scale` says": lambda: _scales(attention),
        "gradients reach every parameter": lambda: _learns(attention),
    }


def standing(build: Callable[[AttentionSpec], Built], cross: bool) -> list[tuple[AttentionSpec, Built]]:
    """Accepted specs, each with the module built for the spec. Raises NotChecked if all specs are refused."""
    found, reasons = [], []
    for spec in SPECS.values():
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

    def build(spec: AttentionSpec) -> nn.Module:
        return stirred(built(lambda: attention.build(replace(spec, **changes)))).eval()

    return standing(build, cross)


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
    """Call with q, k, v and bias by position, as in architectures."""
    by_position = [given[name] for name in BY_POSITION]
    answer: Tensor = module(*by_position, **{name: value for name, value in given.items() if name not in BY_POSITION})
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


def _attention_does_not_leak(attention: Attention) -> Outcome:
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
    for spec, module in _built(attention):
        plain = stirred(built(lambda spec=spec: attention.build(replace(spec, unscaled=True)))).eval()  # type: ignore[misc]
        given = _arguments(attention, spec, *_sizes(spec)[1])
        if torch.allclose(_call(plain, given), _call(module, given), atol=1e-5):
            return "it does not use spec.scale, the factor of q . k: right only for an attention without dot products"
    return None


def _learns(attention: Attention) -> Outcome:
    gradients = Gradients()
    for spec, module in _built(attention):
        queries, keys = _sizes(spec)[1]
        gradients.add(module, _call(module.train(), _arguments(attention, spec, queries, keys)))
    gradients.expect_all()
    return None


TOKENS = 3
"""Token ids are from 0 to below this, as in the smallest tasks."""
SEVERAL = 2
"""Contexts of a batch."""


def checks_of_position(position: Position) -> Checks:
    return {
        "shapes stay, and a bias has a number for every query and key": lambda: _position_keeps_shape(position),
        "a token's position does not depend on what follows": lambda: _position_does_not_leak(position),
        "the last queries have the positions that they have among others": lambda: _places_the_last(position),
        "each context has its own positions": lambda: _keeps_contexts_apart(position),
    }


class Acts:
    """Modules of a position code for one spec, in evaluation mode, called as in architectures."""

    def __init__(self, position: Position, spec: AttentionSpec) -> None:
        self.spec, self.reads_tokens = spec, position.reads_tokens
        self._modules: Mapping[str, nn.Module] = {
            method: stirred(module).eval()
            for method, module in {
                "embed": built_or_none(lambda: position.embed(spec.width, POSITIONS)),
                "rotate": built_or_none(lambda: position.rotate(spec)),
                "bias": built_or_none(lambda: position.bias(spec)),
            }.items()
            if module is not None
        }

    def __contains__(self, method: str) -> bool:
        return method in self._modules

    def __bool__(self) -> bool:
        return bool(self._modules)

    def embed(self, x: Tensor, tokens: Tensor) -> Tensor:
        y: Tensor = self._modules["embed"](x, **self._named(tokens))
        return y

    def rotate(self, q: Tensor, k: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        turned: tuple[Tensor, Tensor] = self._modules["rotate"](q, k, **self._named(tokens))
        return turned

    def raw_bias(self, q: Tensor, k: Tensor, tokens: Tensor) -> Tensor:
        bias: Tensor = self._modules["bias"](q, k, **self._named(tokens))
        return bias

    def bias(self, q: Tensor, k: Tensor, tokens: Tensor) -> Tensor:
        """For every context, head, query and key."""
        return self.raw_bias(q, k, tokens).expand(*q.shape[:3], k.shape[2])

    def _named(self, tokens: Tensor) -> dict[str, Tensor]:
        return {"tokens": tokens} if self.reads_tokens else {}


def _acting(position: Position) -> list[tuple[AttentionSpec, Acts]]:
    """Position code for each accepted spec of self-attention. Raises NotChecked if all specs are refused."""
    return standing(lambda spec: Acts(position, spec), cross=False)


def _given(spec: AttentionSpec, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """The queries of the last positions, keys, and token ids."""
    shape = (SEVERAL, spec.heads, keys, spec.head_dim)
    tokens = integers(TOKENS, SEVERAL, keys, seed=3)
    return numbers(*shape, seed=1)[:, :, keys - queries :], numbers(*shape, seed=2), tokens


def _position_keeps_shape(position: Position) -> Outcome:
    found = _acting(position)
    for spec, acts in found:
        for length in (1, POSITIONS) if "embed" in acts else ():
            x = numbers(SEVERAL, length, spec.width)
            y = acts.embed(x, integers(TOKENS, SEVERAL, length))
            expect(y.shape == x.shape and y.dtype == x.dtype, f"embed: {kind_of(x)} becomes {kind_of(y)}, and both should stay")
        for queries, keys in ((1, 1), (POSITIONS, POSITIONS), (1, 65)):
            given = _given(spec, queries, keys)
            if "rotate" in acts:
                before, after = given[:2], acts.rotate(*given)
                shapes = " and ".join(f"{tuple(a.shape)} becomes {tuple(b.shape)}" for a, b in zip(before, after, strict=True))
                stay = all(a.shape == b.shape for a, b in zip(before, after, strict=True))
                expect(stay, f"rotate: {shapes}, and both should stay")
            if "bias" in acts:
                _require_bias(acts.raw_bias(*given), (SEVERAL, spec.heads, queries, keys))
    nothing = not any(acts for _, acts in found)
    return "it does nothing in any of the places that were tried: right only for no position code" if nothing else None


def _require_bias(bias: Tensor, shape: tuple[int, ...]) -> None:
    fits = bias.ndim <= 4 and all(a in (1, b) for a, b in zip(bias.shape[::-1], shape[::-1], strict=False))
    expect(fits, f"bias is {tuple(bias.shape)}, expected {shape[1:]}, or {shape} with a bias for each context")
    expect(bool(bias.isfinite().all()), "some of the bias is not finite; the attention itself hides later keys")


def _position_does_not_leak(position: Position) -> Outcome:
    sentence, now = "the first positions change if more tokens follow", POSITIONS // 2
    for spec, acts in _acting(position):
        x, (q, k, tokens) = numbers(SEVERAL, POSITIONS, spec.width), _given(spec, POSITIONS, POSITIONS)
        first = (q[:, :, :now], k[:, :, :now], tokens[:, :now])
        if "embed" in acts:
            expect_close(acts.embed(x[:, :now], first[2]), acts.embed(x, tokens)[:, :now], f"embed: {sentence}", 1e-5)
        if "rotate" in acts:
            for alone, among in zip(acts.rotate(*first), acts.rotate(q, k, tokens), strict=True):
                expect_close(alone, among[:, :, :now], f"rotate: {sentence}", 1e-5)
        if "bias" in acts:
            seen = torch.ones(now, now, dtype=torch.bool).tril()
            alone, among = acts.bias(*first), acts.bias(q, k, tokens)[:, :, :now, :now]
            expect_close(alone.where(seen, 0), among.where(seen, 0), f"bias: {sentence}", 1e-4)
    return None


def _places_the_last(position: Position) -> Outcome:
    for spec, acts in _acting(position):
        every = _given(spec, POSITIONS, POSITIONS)
        for asked, sentence in ASKED.items():
            last = _given(spec, asked, POSITIONS)
            if "rotate" in acts:
                (q, k), (every_q, every_k) = acts.rotate(*last), acts.rotate(*every)
                expect_close(q, every_q[:, :, -asked:], f"rotate: {sentence} is rotated in another way", 1e-5)
                expect_close(k, every_k, f"rotate: keys are rotated in another way for {sentence}", 1e-5)
            if "bias" in acts:
                expect_close(acts.bias(*last), acts.bias(*every)[:, :, -asked:], f"bias: {sentence} gets another bias", 1e-4)
    return None


def _keeps_contexts_apart(position: Position) -> Outcome:
    sentence = "a context's result depends on the contexts beside it"
    for spec, acts in _acting(position):
        x, given = numbers(SEVERAL, POSITIONS, spec.width), _given(spec, POSITIONS, POSITIONS)
        for context in (slice(0, 1), slice(1, 2)):
            own = tuple(tensor[context] for tensor in given)
            if "embed" in acts:
                alone = acts.embed(x[context], own[2])
                expect_close(alone, acts.embed(x, given[2])[context], f"embed: {sentence}", 1e-5)
            if "rotate" in acts:
                for alone, among in zip(acts.rotate(*own), acts.rotate(*given), strict=True):
                    expect_close(alone, among[context], f"rotate: {sentence}", 1e-5)
            if "bias" in acts:
                expect_close(acts.bias(*own), acts.bias(*given)[context], f"bias: {sentence}", 1e-4)
    return None
