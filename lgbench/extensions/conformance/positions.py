"""Checks of position codes, wherever in a model they can stand."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lgbench.contracts import AttentionSpec, Position
from lgbench.extensions.conformance.attentions import ASKED, POSITIONS, standing
from lgbench.extensions.conformance.check import Checks, Outcome, expect, expect_close
from lgbench.extensions.conformance.probes import built_or_none, integers, kind_of, numbers, stirred

TOKENS = 3
"""Token ids are from 0 to below this, as in the smallest tasks."""
SEVERAL = 2
"""Contexts of a batch."""


def checks(position: Position) -> Checks:
    return {
        "shapes stay, and a bias has a number for every query and key": lambda: _keeps_shape(position),
        "a token's position does not depend on what follows": lambda: _does_not_look_ahead(position),
        "the last queries have the positions that they have among others": lambda: _places_the_last(position),
        "each context has its own positions": lambda: _keeps_contexts_apart(position),
    }


class Acts:
    """A position code built for one spec: its modules, in evaluation mode, called as architectures call them."""

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
    """The code built for each spec of self-attention that it does not refuse. Raises NotChecked if it refuses them all."""
    return standing(lambda spec: Acts(position, spec), cross=False)


def _given(spec: AttentionSpec, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """The queries of the last positions, keys, and token ids."""
    shape = (SEVERAL, spec.heads, keys, spec.head_dim)
    tokens = integers(TOKENS, SEVERAL, keys, seed=3)
    return numbers(*shape, seed=1)[:, :, keys - queries :], numbers(*shape, seed=2), tokens


def _keeps_shape(position: Position) -> Outcome:
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


def _does_not_look_ahead(position: Position) -> Outcome:
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
