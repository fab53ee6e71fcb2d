"""A decoder in plain loops over layers, heads, queries and keys, to which published methods are held; and their registry."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from helpers.registries import BUILT_IN, parts_of, with_things
from lgbench import Answers, Parts, Signature, Tokens
from lgbench.extensions.registry import Registry

Weights = dict[str, Tensor]
Sublayer = Callable[[Tensor], Tensor]
TOKENS = Signature(Tokens(5), 5, Answers.EVERY_PREFIX)


def built_in_and(**things: object) -> Registry:
    """The built-in plugins, and things by kind: `norm=MyNorm()`, or a list."""
    return with_things(Registry.load({"LGBENCH_PLUGINS": ",".join(BUILT_IN)}), **things)


def with_parts(registry: Registry, **parts: object) -> Parts:
    """The parts of the baseline, some of them replaced."""
    return replace(parts_of(registry), **parts)


def decoder(registry: Registry, parts: Parts, signature: Signature = TOKENS, seed: int = 0, **options: Any) -> nn.Module:
    """The transformer with weights unlike its initial ones, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = registry.architectures["transformer"].build(signature, parts, **{"heads": 2, "width": 8, **options})
        for parameter in model.parameters():
            nn.init.normal_(parameter, 0.5 if parameter.ndim < 2 else 0.0, 0.5)
    return model.double().eval()


def contexts(n: int = 3, length: int = 7, seed: int = 1) -> Tensor:
    return torch.randint(5, (n, length), generator=torch.Generator().manual_seed(seed))


def rms(x: Tensor, gain: Tensor | float = 1.0, epsilon: float = 1e-6) -> Tensor:
    return gain * x / ((x * x).mean(-1, keepdim=True) + epsilon).sqrt()


def standard(x: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Zero mean and unit variance."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + epsilon).sqrt()


def pre_norm(scope: str, layer: int, weights: Weights, x: Tensor, sublayer: Sublayer) -> Tensor:
    return x + sublayer(rms(x, weights[f"{scope}.before.weight"]))


def softmax(logits: list[float]) -> list[float]:
    largest = max(logits)
    total = sum(math.exp(z - largest) for z in logits)
    return [math.exp(z - largest) / total for z in logits]


@dataclass(frozen=True)
class PlainDecoder:
    """The baseline, and the places where a method differs from it. Layers count from 1; vectors have the features of a head."""

    residual: Callable[[str, int, Weights, Tensor, Sublayer], Tensor] = pre_norm
    """Scope of the block's weights, layer, weights, stream (T, W), sublayer -> stream."""
    final: Callable[[Weights, Tensor], Tensor] = lambda weights, x: rms(x, weights["logits.0.weight"])
    embed: Callable[[Weights, Tensor, list[int]], Tensor] = lambda weights, x, tokens: x
    """Weights, embedding (T, W), tokens."""
    query: Callable[[str, Weights, Tensor], Tensor] = lambda scope, weights, q: q
    key: Callable[[str, Weights, Tensor], Tensor] = lambda scope, weights, k: k
    head: Callable[[str, Weights, Tensor], Tensor] = lambda scope, weights, mixed: mixed
    rotate: Callable[[Tensor, int, list[int]], Tensor] = lambda x, position, tokens: x
    bias: Callable[[str, Weights, list[Tensor], list[Tensor], int, int, list[int]], float] = lambda *where: 0.0
    """Scope, weights, queries and keys of one head, position of query and of key, tokens."""
    mix: Callable[[str, Weights, int, Tensor, list[float]], list[float]] = lambda scope, weights, h, x, z: softmax(z)
    """Scope, weights, head, input of the sublayer (T, W), logits over the visible keys -> weights of the values."""

    def __call__(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) by the weights of the model."""
        weights, heads = model.state_dict(), model.blocks[0].sublayer.heads
        return torch.stack([self._context(weights, heads, row, len(model.blocks) // 2) for row in tokens.tolist()])

    def _context(self, weights: Weights, heads: int, tokens: list[int], layers: int) -> Tensor:
        x = self.embed(weights, weights["embedding.weight"][tokens], tokens)
        for layer in range(1, layers + 1):
            attention, mlp = f"blocks.{2 * layer - 2}", f"blocks.{2 * layer - 1}"
            attend = lambda y, scope=attention: self._attention(f"{scope}.sublayer", weights, heads, tokens, y)  # noqa: E731
            x = self.residual(attention, layer, weights, x, attend)
            x = self.residual(mlp, layer, weights, x, lambda y, scope=mlp: gelu_mlp(f"{scope}.sublayer", weights, y))
        return self.final(weights, x) @ weights["logits.1.weight"].T

    def _attention(self, scope: str, weights: Weights, heads: int, tokens: list[int], x: Tensor) -> Tensor:
        q, k, v = (x @ weights[f"{scope}.{name}.weight"].T for name in ("query", "key", "value"))
        columns = []
        for h, features in enumerate(torch.arange(x.shape[1]).chunk(heads)):
            own_q = [self.rotate(self.query(scope, weights, row[features]), i, tokens) for i, row in enumerate(q)]
            own_k = [self.rotate(self.key(scope, weights, row[features]), j, tokens) for j, row in enumerate(k)]
            mixed = []
            for i in range(len(tokens)):
                z = [
                    float(own_q[i] @ own_k[j]) / math.sqrt(len(features))
                    + self.bias(scope, weights, own_q, own_k, i, j, tokens)
                    for j in range(i + 1)
                ]
                taken = self.mix(scope, weights, h, x, z)
                mixed.append(self.head(scope, weights, sum(w * v[j, features] for j, w in enumerate(taken))))
            columns.append(torch.stack(mixed))
        return torch.cat(columns, -1) @ weights[f"{scope}.out.weight"].T


def gelu_mlp(scope: str, weights: Weights, x: Tensor) -> Tensor:
    hidden = x @ weights[f"{scope}.0.weight"].T + weights[f"{scope}.0.bias"]
    hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
    return hidden @ weights[f"{scope}.2.weight"].T + weights[f"{scope}.2.bias"]
