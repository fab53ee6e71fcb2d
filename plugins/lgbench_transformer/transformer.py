"""The baseline: a decoder without position code, whose norms are whatever the scheme says."""

from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Answers, Architecture, NormScheme, Signature, Tokens, Unsupported


class Attention(nn.Module):
    """Causal softmax attention; with `last`, only the query of the last position is computed."""

    def __init__(self, width: int, heads: int, last: bool) -> None:
        super().__init__()
        self.heads, self.last = heads, last
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D), or (B, 1, D) with `last`."""
        asking = x[:, -1:] if self.last else x
        q, k, v = (self._split(y) for y in (self.query(asking), self.key(x), self.value(x)))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=not self.last)  # (B, H, L or 1, D / H)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)  # (B, H, L, D / H)


class Decoder(nn.Module):
    """Embedding, residual sublayers, logits. `last` tasks drop all positions but the last in the last attention."""

    def __init__(self, signature: Signature, norm: NormScheme, layers: int, heads: int, width: int, mlp: bool) -> None:
        super().__init__()
        inputs = signature.inputs
        self.embed = nn.Sequential(
            nn.Embedding(inputs.size, width) if isinstance(inputs, Tokens) else nn.Linear(inputs.width, width),
            norm.embed(width),
        )
        blocks = []
        for layer in range(layers):
            last = signature.answers is Answers.LAST and layer == layers - 1
            blocks.append(norm.residual(width, Attention(width, heads, last), "attention"))
            if mlp:
                hidden = 4 * width
                feed_forward = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
                blocks.append(norm.residual(width, feed_forward, "mlp"))
        self.blocks = nn.Sequential(*blocks)
        self.logits = nn.Sequential(norm.final(width), nn.Linear(width, signature.classes, bias=False))
        self.answers = signature.answers

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, L) or (B, L, F) -> (B, L, V), or (B, 1, V) where only the last position answers."""
        x = self.blocks(self.embed(inputs))
        logits: Tensor = self.logits(x if self.answers is Answers.EVERY_PREFIX else x[:, -1:])
        return logits


@final
class Transformer(Architecture):
    """Causal decoder without position code: layers of attention and, with `mlp`, a GELU MLP of 4 x width."""

    name = "transformer"
    default_norm = "pre-norm"

    def build(
        self,
        signature: Signature,
        norm: NormScheme,
        *,
        layers: int = 2,
        heads: int = 1,
        width: int = 32,
        mlp: bool = True,
    ) -> nn.Module:
        if min(layers, heads, width) < 1:
            raise Unsupported(f"layers, heads and width must be at least 1, got {layers}, {heads} and {width}")
        if width % heads:
            raise Unsupported(f"width must be a multiple of heads, got {width} and {heads}")
        return Decoder(signature, norm, layers, heads, width, mlp)
