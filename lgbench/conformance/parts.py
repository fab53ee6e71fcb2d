"""What attentions and position codes promise, wherever in a model they can stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lgbench.conformance.check import Gradients, NotHere, Outcome, built, expect, expect_close, kind_of, numbers, stirred
from lgbench.contracts import Attention, Place, Position

DIM, POSITIONS = 12, 9
Built = TypeVar("Built")

ASKED = {1: "the last query alone", 4: "one of the last four queries without the others"}
"""For how many of the last positions an answer may be wanted."""

PLACES = {
    "one head of odd width": Place(1, 7, 1, POSITIONS),
    "two heads in the second layer": Place(2, DIM, 2, POSITIONS),
    "queries from elsewhere": Place(1, 8, 1, POSITIONS, crossing=True),
}


def attention_promises(attention: Attention) -> Mapping[str, Callable[[], Outcome]]:
    return {
        "shape and dtype are those of the queries, for one key and for many": lambda: _attentions_keep_shape(attention),
        "queries do not see later keys": lambda: _attentions_do_not_look_ahead(attention),
        "the last queries alone get what they get among others": lambda: _attentions_answer_the_last(attention),
        "a bias of zeros changes nothing, and another something": lambda: _attentions_take_a_bias(attention),
        "logits are scaled as its place says": lambda: _attentions_scale(attention),
        "gradients reach every parameter": lambda: _attentions_learn(attention),
    }


def position_promises(position: Position) -> Mapping[str, Callable[[], Outcome]]:
    return {
        "shapes stay, and a bias has one for every query and key": lambda: _positions_keep_shape(position),
        "a token's position does not depend on what follows": lambda: _positions_do_not_look_ahead(position),
        "the last queries stand where they stand among others": lambda: _positions_place_the_last(position),
    }


def _attending(attention: Attention, crossing: bool = True) -> list[tuple[Place, nn.Module]]:
    """Where it can stand. Raises NotHere where that is nowhere."""
    return _standing(lambda place: stirred(built(lambda: attention.build(place))).eval(), crossing)


def _standing(build: Callable[[Place], Built], crossing: bool) -> list[tuple[Place, Built]]:
    found, reasons = [], []
    for place in PLACES.values():
        try:
            if crossing or not place.crossing:
                found.append((place, build(place)))
        except NotHere as refusal:
            reasons.append(str(refusal))
    if not found:
        raise NotHere(f"it refused every place, such as: {reasons[0]}")
    return found


def _arguments(attention: Attention, place: Place, queries: int, keys: int) -> dict[str, Any]:
    every = max(queries, keys) if attention.every_query else queries
    return {
        "q": numbers(2, place.heads, every, place.head_dim, seed=1),
        "k": numbers(2, place.heads, keys, place.head_dim, seed=2),
        "v": numbers(2, place.heads, keys, place.head_dim, seed=3),
        "asking": numbers(2, queries, place.width, seed=4),
        "bias": None,
    }


def _sizes(place: Place) -> tuple[tuple[int, int], ...]:
    """Numbers of queries and keys."""
    return ((1, 1), (1, POSITIONS), (1, 65)) if place.crossing else ((1, 1), (POSITIONS, POSITIONS), (1, POSITIONS), (1, 65))


def _attentions_keep_shape(attention: Attention) -> Outcome:
    for place, module in _attending(attention):
        for queries, keys in _sizes(place):
            y = module(**_arguments(attention, place, queries, keys))
            shape = (2, place.heads, queries, place.head_dim)
            fits = y.shape == shape and y.dtype == torch.float32
            expect(fits, f"with Q = {queries} and K = {keys} it gives {kind_of(y)}, expected {shape} float32")
            expect(bool(y.isfinite().all()), f"with Q = {queries} and K = {keys} it gives something that is not finite")
    return None


def _attentions_do_not_look_ahead(attention: Attention) -> Outcome:
    for place, module in _attending(attention, crossing=False):
        now = POSITIONS // 2
        given = _arguments(attention, place, POSITIONS, POSITIONS)
        other = {name: value if value is None else value.clone() for name, value in given.items()}
        for name, value in other.items():
            if value is not None:
                later = value[:, now:] if name == "asking" else value[:, :, now:]
                later.add_(1.5)
        sentence = f"what the first {now} queries take changes with what comes after them"
        expect_close(module(**given)[:, :, :now], module(**other)[:, :, :now], sentence, 1e-5)
    return None


def _attentions_answer_the_last(attention: Attention) -> Outcome:
    for place, module in _attending(attention, crossing=False):
        given = _arguments(attention, place, POSITIONS, POSITIONS)
        for asked, sentence in ASKED.items():
            last = {**given, "asking": given["asking"][:, -asked:]}
            if not attention.every_query:
                last["q"] = given["q"][:, :, -asked:]
            expect_close(module(**last), module(**given)[:, :, -asked:], f"{sentence} takes something else", 1e-5)
    return None


def _attentions_take_a_bias(attention: Attention) -> Outcome:
    def build(place: Place) -> nn.Module:
        return stirred(built(lambda: attention.build(replace(place, biased=True)))).eval()

    for place, module in _standing(build, crossing=True):
        queries, keys = _sizes(place)[1]
        given = _arguments(attention, place, queries, keys)
        expected, shape = module(**given), (place.heads, given["q"].shape[-2], keys)
        for zeros in (torch.zeros(shape), torch.zeros(1, 1, keys), torch.zeros(shape[0], 1, 1)):
            sentence = f"with a bias of zeros, {tuple(zeros.shape)}, it gives something else than without"
            expect_close(module(**{**given, "bias": zeros}), expected, sentence, 1e-5)
        moved = not torch.equal(module(**{**given, "bias": numbers(*shape, seed=6)}), expected)
        expect(moved, "a bias changes nothing: raise Unsupported for a place that is `biased` where it takes none")
    return None


def _attentions_scale(attention: Attention) -> Outcome:
    for place, module in _attending(attention):
        plain = stirred(built(lambda place=place: attention.build(replace(place, plain=True)))).eval()  # type: ignore[misc]
        given = _arguments(attention, place, *_sizes(place)[1])
        if torch.allclose(plain(**given), module(**given), atol=1e-5):
            return (
                "it makes no use of place.scale, by which products of queries and keys are multiplied: right only without any"
            )
    return None


def _attentions_learn(attention: Attention) -> Outcome:
    gradients = Gradients()
    for place, module in _attending(attention):
        queries, keys = _sizes(place)[1]
        gradients.look(module, module.train()(**_arguments(attention, place, queries, keys)))
    gradients.expect_all()
    return None


def _acting(position: Position) -> list[tuple[Place, dict[str, nn.Module]]]:
    """What the code does, in evaluation mode, wherever it can stand. Raises NotHere where that is nowhere."""

    def acts(place: Place) -> dict[str, nn.Module]:
        found = {
            "embed": built(lambda: position.embed(place.width, POSITIONS) or nn.Identity()),
            "turn": built(lambda: position.turn(place) or nn.Identity()),
            "bias": built(lambda: position.bias(place) or nn.Identity()),
        }
        return {where: stirred(module).eval() for where, module in found.items() if not isinstance(module, nn.Identity)}

    return _standing(acts, crossing=False)


def _meeting(place: Place, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """The queries of the last positions, and keys."""
    shape = (2, place.heads, keys, place.head_dim)
    return numbers(*shape, seed=1)[:, :, keys - queries :], numbers(*shape, seed=2)


def _positions_keep_shape(position: Position) -> Outcome:
    found = _acting(position)
    for place, acts in found:
        for length in (1, POSITIONS) if "embed" in acts else ():
            x = numbers(2, length, place.width)
            y = acts["embed"](x)
            expect(y.shape == x.shape and y.dtype == x.dtype, f"embed: {kind_of(x)} becomes {kind_of(y)}, and both should stay")
        for queries, keys in ((1, 1), (POSITIONS, POSITIONS), (1, 65)):
            q, k = _meeting(place, queries, keys)
            if "turn" in acts:
                turned = acts["turn"](q, k)
                shapes = f"{tuple(q.shape)} and {tuple(k.shape)} become {tuple(turned[0].shape)} and {tuple(turned[1].shape)}"
                expect((turned[0].shape, turned[1].shape) == (q.shape, k.shape), f"turn: {shapes}, and both should stay")
            if "bias" in acts:
                bias = acts["bias"](q, k)
                shape = (place.heads, queries, keys)
                fits = bias.ndim <= 3 and all(a in (1, b) for a, b in zip(bias.shape[::-1], shape[::-1], strict=False))
                expect(fits, f"bias is {tuple(bias.shape)}, expected {shape}")
                finite = bool(bias.isfinite().all())
                expect(finite, "some of the bias is not finite; what a query does not see is masked anyhow")
    nothing = not any(acts for _, acts in found)
    return "it does nothing in any of three places: right only for no position code" if nothing else None


def _positions_do_not_look_ahead(position: Position) -> Outcome:
    sentence, now = "the first positions are told otherwise where more follow", POSITIONS // 2
    for place, acts in _acting(position):
        x, (q, k) = numbers(2, POSITIONS, place.width), _meeting(place, POSITIONS, POSITIONS)
        if "embed" in acts:
            expect_close(acts["embed"](x[:, :now]), acts["embed"](x)[:, :now], f"embed: {sentence}", 1e-5)
        if "turn" in acts:
            alone, among = acts["turn"](q[:, :, :now], k[:, :, :now]), acts["turn"](q, k)
            for turned, longer in zip(alone, among, strict=True):
                expect_close(turned, longer[:, :, :now], f"turn: {sentence}", 1e-5)
        if "bias" in acts:
            seen = torch.ones(now, now, dtype=torch.bool).tril()
            alone, among = (_bias(acts, q[:, :, :n], k[:, :, :n]) for n in (now, POSITIONS))
            expect_close(alone.where(seen, 0), among[:, :now, :now].where(seen, 0), f"bias: {sentence}", 1e-4)
    return None


def _positions_place_the_last(position: Position) -> Outcome:
    for place, acts in _acting(position):
        every = _meeting(place, POSITIONS, POSITIONS)
        for asked, sentence in ASKED.items():
            last = _meeting(place, asked, POSITIONS)
            if "turn" in acts:
                (q, k), (every_q, every_k) = acts["turn"](*last), acts["turn"](*every)
                expect_close(q, every_q[:, :, -asked:], f"turn: {sentence} is turned otherwise", 1e-5)
                expect_close(k, every_k, f"turn: keys are turned otherwise for {sentence}", 1e-5)
            if "bias" in acts:
                expect_close(_bias(acts, *last), _bias(acts, *every)[:, -asked:], f"bias: {sentence} gets another", 1e-4)
    return None


def _bias(acts: Mapping[str, nn.Module], q: Tensor, k: Tensor) -> Tensor:
    """For every head, query and key."""
    bias: Tensor = acts["bias"](q, k)
    return bias.expand(q.shape[1], q.shape[2], k.shape[2])
