"""Published norm schemes that need to know the layer, the heads or the initial weights, as plugins, held to plain loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers.checking import assert_sound
from helpers.plain_decoder import (
    TOKENS,
    PlainDecoder,
    Sublayer,
    Weights,
    contexts,
    decoder,
    rms,
    standard,
    with_parts,
)
from torch import Tensor, nn

from lgbench import Matrix, NormScheme, Position, SublayerSpec
from lgbench.extensions.registry import Registry
from lgbench_norms import SCHEMES

PRE, POST = (next(scheme for scheme in SCHEMES if scheme.name == name) for name in ("pre-norm", "post-norm"))


class LikePreNorm(NormScheme):
    """Pre-norm, of which a scheme changes something."""

    def embed(self, width: int) -> nn.Module:
        return PRE.embed(width)

    def residual(self, spec: SublayerSpec, sublayer: nn.Module) -> nn.Module:
        return PRE.residual(spec, sublayer)

    def output(self, spec: SublayerSpec) -> nn.Module:
        return PRE.output(spec)

    def final(self, width: int) -> nn.Module:
        return PRE.final(width)


class QueryKeyNorm(LikePreNorm):
    """RMSNorm on the queries and keys of each head (arXiv 2010.04245, as in arXiv 2405.09818)."""

    name = "query-key-norm"

    def query(self, spec: SublayerSpec) -> nn.Module:
        return nn.RMSNorm(spec.head_dim, eps=1e-6)

    def key(self, spec: SublayerSpec) -> nn.Module:
        return nn.RMSNorm(spec.head_dim, eps=1e-6)


class HeadNorm(LikePreNorm):
    """Zero mean and unit variance of each head's output, as the GroupNorm of RetNet (arXiv 2307.08621)."""

    name = "head-norm"

    def head(self, spec: SublayerSpec) -> nn.Module:
        return nn.LayerNorm(spec.head_dim, elementwise_affine=False)


class Scaled(nn.Module):
    """LN(alpha x + F(x)), at the positions for which the sublayer answers."""

    def __init__(self, alpha: float, sublayer: nn.Module, width: int) -> None:
        super().__init__()
        self.alpha, self.sublayer, self.norm = alpha, sublayer, nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x: Tensor) -> Tensor:
        change = self.sublayer(x)
        return self.norm(self.alpha * x[..., -change.shape[-2] :, :] + change)


class DeepNorm(LikePreNorm):
    """x <- LN(alpha x + F(x)), alpha = (2 N)^(1/4), initial weights times (8 N)^(-1/4) (arXiv 2203.00555, decoder-only)."""

    name = "deep-norm"

    def residual(self, spec: SublayerSpec, sublayer: nn.Module) -> nn.Module:
        return Scaled((2 * spec.layers) ** 0.25, sublayer, spec.width)

    def final(self, width: int) -> nn.Module:
        return nn.Identity()

    def gain(self, spec: SublayerSpec, matrix: Matrix) -> float:
        return 1.0 if matrix in ("query", "key") else (8 * spec.layers) ** -0.25


class Doubling(Position):
    """Doubles queries and keys, so that it matters whether a norm stands before it or after it."""

    name = "doubling"

    def rotate(self, spec) -> nn.Module:
        class Double(nn.Module):
            def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
                return 2 * q, 2 * k

        return Double()


def deep(scope: str, layer: int, weights: Weights, x: Tensor, sublayer: Sublayer) -> Tensor:
    return standard((2 * 4) ** 0.25 * x + sublayer(x))


METHODS: dict[NormScheme, PlainDecoder] = {
    QueryKeyNorm(): PlainDecoder(
        query=lambda scope, weights, q: rms(q, weights[f"{scope}.norm_query.weight"]),
        key=lambda scope, weights, k: rms(k, weights[f"{scope}.norm_key.weight"]),
        rotate=lambda x, position, tokens: 2 * x,
    ),
    HeadNorm(): PlainDecoder(head=lambda scope, weights, x: standard(x), rotate=lambda x, position, tokens: 2 * x),
    DeepNorm(): PlainDecoder(residual=deep, final=lambda weights, x: x, rotate=lambda x, position, tokens: 2 * x),
}
methods = pytest.mark.parametrize("scheme", METHODS, ids=lambda scheme: scheme.name)


@methods
def test_a_model_with_the_scheme_is_the_published_one(registry: Registry, scheme: NormScheme) -> None:
    model = decoder(registry, with_parts(registry, norm=scheme, position=Doubling()), layers=4)
    torch.testing.assert_close(model(contexts()), METHODS[scheme](model, contexts()))


def initial(registry: Registry, scheme: NormScheme, layers: int) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = with_parts(registry, norm=scheme)
        model = registry.architectures["transformer"].build(TOKENS, parts, layers=layers, heads=2, width=8)
        return {name: weight for name, weight in model.state_dict().items() if "sublayer" in name}


@pytest.mark.parametrize("layers", [1, 3])
def test_initial_weights_are_multiplied_by_the_gain_of_their_matrix(registry: Registry, layers: int) -> None:
    plain, gained = initial(registry, POST, layers), initial(registry, DeepNorm(), layers)
    assert plain.keys() == gained.keys()
    for name, weight in plain.items():
        changed = name.endswith("weight") and ".query." not in name and ".key." not in name
        torch.testing.assert_close(gained[name], weight * ((8 * layers) ** -0.25 if changed else 1.0), rtol=1e-6, atol=0)


class Asked(LikePreNorm):
    """Writes down which of its methods are called, and with what."""

    name = "asked"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattribute__(self, method: str) -> Any:
        found = super().__getattribute__(method)
        if method not in ("embed", "residual", "output", "final", "query", "key", "head", "gain"):
            return found

        def noted(*arguments: Any) -> Any:
            self.calls.append((method, *(a for a in arguments if not isinstance(a, nn.Module))))
            return found(*arguments)

        return noted


def of_attention(spec: SublayerSpec, *matrices: Matrix) -> Iterator[tuple[Any, ...]]:
    yield from (("gain", spec, matrix) for matrix in matrices)
    yield from ((slot, spec) for slot in ("query", "key", "head"))


def test_a_scheme_is_asked_in_the_order_of_the_contract(registry: Registry) -> None:
    scheme = Asked()
    decoder(registry, with_parts(registry, norm=scheme), layers=2)
    expected: list[tuple[Any, ...]] = [("embed", 8)]
    for layer in (1, 2):
        attention, mlp = SublayerSpec("attention", layer, 2, 8, 2), SublayerSpec("mlp", layer, 2, 8)
        expected += [*of_attention(attention, "query", "key", "value", "out"), ("residual", attention)]
        expected += [("gain", mlp, "up"), ("gain", mlp, "down"), ("residual", mlp)]
    assert scheme.calls == [*expected, ("final", 8)]


def test_without_a_residual_connection_a_scheme_is_asked_in_the_same_order(registry: Registry) -> None:
    scheme, spec = Asked(), SublayerSpec("attention", 1, 1, 128)
    parts = with_parts(registry, norm=scheme, position=None)
    registry.architectures["set-attention"].build(registry.tasks["max-retrieval"].signature, parts)
    assert scheme.calls == [("embed", 128), ("embed", 128), *of_attention(spec, "query", "key", "value"), ("output", spec)]


@pytest.mark.parametrize("scheme", [QueryKeyNorm(), HeadNorm()], ids=lambda scheme: scheme.name)
def test_norms_of_queries_keys_and_heads_act_in_set_attention_too(registry: Registry, scheme: NormScheme) -> None:
    signature, width = registry.tasks["max-retrieval"].signature, 16
    parts = with_parts(registry, norm=scheme, position=None)
    model = registry.architectures["set-attention"].build(signature, parts, width=width).double()
    inputs = torch.randn(3, 6, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    items, query = model.embed_item(inputs[:, :-1]), model.embed_query(inputs[:, -1])
    q, k, v = model.query(query), model.key(items), model.value(items)
    if scheme.name == "query-key-norm":
        q, k = rms(q), rms(k)
    taken = (torch.einsum("bw,bkw->bk", q, k).softmax(-1)[..., None] * v).sum(1)
    taken = standard(taken) if scheme.name == "head-norm" else taken
    torch.testing.assert_close(model(inputs), model.logits(taken)[:, None])


@pytest.mark.slow
@methods
def test_a_published_norm_scheme_passes_all_checks(scheme: NormScheme, recwarn) -> None:
    assert_sound(scheme)
