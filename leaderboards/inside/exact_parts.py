"""The transformer with one part in float32 where the rest computes in bfloat16, as an lgbench plugin.

    lgbench run --plugin leaderboards/inside/exact_parts.py --arch exact-embedding,exact-logits --precision bfloat16 ...

It asks which part loses what training in bfloat16 costs on max retrieval. In float32 every entry here is `transformer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from lgbench import Architecture, Parts, Signature, hookimpl
from lgbench.attending import masked_logits
from lgbench_transformer.transformer import Decoder, SelfAttention, Transformer


class Exact(nn.Module):
    """Module in float32, whatever automatic mixed precision says."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            out: Tensor = self.module(x.float() if x.is_floating_point() else x)
        return out


class ExactAttention(nn.Module):
    """Softmax attention with exact logits, or with an exact mean of the values."""

    def __init__(self, scale: float, logits: bool, values: bool) -> None:
        super().__init__()
        self.scale, self.logits, self.values = scale, logits, values

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        device = q.device.type
        with torch.autocast(device, enabled=torch.is_autocast_enabled(device) and not self.logits):
            weights = masked_logits(*((q.float(), k.float()) if self.logits else (q, k)), bias, self.scale).softmax(-1)
        with torch.autocast(device, enabled=torch.is_autocast_enabled(device) and not self.values):
            return weights.float() @ v.float() if self.values else weights @ v


def exact_embedding(model: Decoder) -> None:
    model.embedding = Exact(model.embedding)


def exact_logits(model: Decoder) -> None:
    for attention in attentions(model):
        attention.query, attention.key = Exact(attention.query), Exact(attention.key)
        attention.attend = ExactAttention(attention.attend.scale, logits=True, values=False)


def exact_values(model: Decoder) -> None:
    for attention in attentions(model):
        attention.value, attention.out = Exact(attention.value), Exact(attention.out)
        attention.attend = ExactAttention(attention.attend.scale, logits=False, values=True)


def exact_head(model: Decoder) -> None:
    model.logits = Exact(model.logits)


def exact_reading(model: Decoder) -> None:
    """Embedding and logits of attention: all that compares one item with another."""
    exact_embedding(model)
    exact_logits(model)


def attentions(model: Decoder) -> list[SelfAttention]:
    return [module for module in model.modules() if isinstance(module, SelfAttention)]


PARTS: Mapping[str, Callable[[Decoder], None]] = {
    "embedding": exact_embedding,
    "logits": exact_logits,
    "values": exact_values,
    "head": exact_head,
    "reading": exact_reading,
}


class ExactTransformer(Architecture):
    """Transformer with a part in float32."""

    defaults = Transformer.defaults
    ranges = Transformer.ranges

    def __init__(self, part: str) -> None:
        self.name, self.change = f"exact-{part}", PARTS[part]
        self.about = f"Transformer with {part} in float32."

    def build(
        self, signature: Signature, parts: Parts, *, layers: int = 2, heads: int = 1, width: int = 32, mlp: bool = True
    ) -> Decoder:
        """A model with the initial weights of the transformer."""
        model = Transformer().build(signature, parts, layers=layers, heads=heads, width=width, mlp=mlp)
        self.change(model)
        return model


@hookimpl
def lgbench_architectures() -> list[Architecture]:
    return [ExactTransformer(part) for part in PARTS]
