"""The baseline: a decoder whose norms, attention and position code are its parts."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from torch import Tensor, nn

from lgbench import Answers, Architecture, AttentionSpec, Need, Parts, Signature, SublayerSpec, Tokens, Unsupported
from lgbench.attending import needed_inputs
from lgbench.chain import Chain
from lgbench_transformer.projections import linear


class CurrentTokens:
    """The token ids that a position code reads, while the model runs: norm schemes pass only the stream to a sublayer."""

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}


class SelfAttention(nn.Module):
    """Causal attention of a sequence to itself. With `last`, only the last position is asked for an answer."""

    def __init__(self, parts: Parts, spec: SublayerSpec, last: bool, tokens: CurrentTokens) -> None:
        super().__init__()
        self.tokens = tokens
        width, norm, position = spec.width, parts.norm, parts.position
        self.heads, self.last, self.needs = spec.heads, last, parts.attention.needs
        self.query = linear(norm, spec, "query", width, width)
        self.key = linear(norm, spec, "key", width, width)
        self.value = linear(norm, spec, "value", width, width)
        self.out = linear(norm, spec, "out", width, width)
        self.norm_query, self.norm_key, self.norm_head = norm.query(spec), norm.key(spec), norm.head(spec)
        stands = AttentionSpec(spec.layer, spec.layers, width, spec.heads, parts.train_positions)
        self.rotate, self.bias = position.rotate(stands), position.bias(stands)
        self.attend = parts.attention.build(replace(stands, has_bias=self.bias is not None))

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, W) -> (B, L, W), or (B, 1, W) with `last`."""
        asked = x[:, -1:] if self.last else x
        q = self._split(self.query(x if Need.ALL_QUERIES in self.needs else asked))
        k, v = self._split(self.key(x)), self._split(self.value(x))
        q = q if self.norm_query is None else self.norm_query(q)
        k = k if self.norm_key is None else self.norm_key(k)
        if self.rotate is not None:
            q, k = self.rotate(q, k, **self.tokens.found)
        bias = None if self.bias is None else self.bias(q, k, **self.tokens.found)
        mixed = self.attend(q, k, v, bias, **needed_inputs(self.needs, asked, x))  # (B, H, L or 1, D)
        mixed = mixed if self.norm_head is None else self.norm_head(mixed)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)  # (B, H, L, D)


class Decoder(nn.Module):
    """Embedding, residual sublayers, logits. `last` tasks drop all positions but the last in the last attention."""

    def __init__(self, signature: Signature, parts: Parts, layers: int, heads: int, width: int, mlp: bool) -> None:
        super().__init__()
        inputs, norm = signature.inputs, parts.norm
        self.embedding = nn.Embedding(inputs.size, width) if isinstance(inputs, Tokens) else nn.Linear(inputs.width, width)
        self.position = parts.position.embed(width, parts.test_positions)
        self.norm_embedding = norm.embed(width)
        self.reads_tokens, self.tokens = parts.position.reads_tokens, CurrentTokens()
        blocks = []
        for layer in range(1, layers + 1):
            last = signature.answers is Answers.LAST and layer == layers
            spec = SublayerSpec("attention", layer, layers, width, heads)
            blocks.append(norm.residual(spec, SelfAttention(parts, spec, last, self.tokens)))
            if mlp:
                spec, hidden = replace(spec, role="mlp", heads=1), 4 * width
                up, down = (
                    linear(norm, spec, "up", width, hidden, bias=True),
                    linear(norm, spec, "down", hidden, width, bias=True),
                )
                blocks.append(norm.residual(spec, Chain(up, nn.GELU(), down)))
        self.blocks = Chain(*blocks)
        self.logits = Chain(norm.final(width), nn.Linear(width, signature.classes, bias=False))
        self.answers = signature.answers

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, L) or (B, L, F) -> (B, L, V), or (B, 1, V) where only the last position answers."""
        self.tokens.found = {"tokens": inputs} if self.reads_tokens else {}
        x = self.embedding(inputs)
        x = x if self.position is None else self.position(x, **self.tokens.found)
        x = self.blocks(self.norm_embedding(x))
        self.tokens.found = {}
        return self.logits(x[:, -1:] if self.answers is Answers.LAST else x)


@final
class Transformer(Architecture):
    """Causal decoder, by itself without position code: layers of attention and, with `mlp`, a GELU MLP of 4 x width."""

    name = "transformer"
    defaults = {"norm": "pre-norm", "attention": "softmax", "position": "nope"}
    ranges = {"layers": (1, 256), "heads": (1, 1024), "width": (1, 16384)}

    def build(
        self,
        signature: Signature,
        parts: Parts,
        *,
        layers: int = 2,
        heads: int = 1,
        width: int = 32,
        mlp: bool = True,
    ) -> Decoder:
        if min(layers, heads, width) < 1:
            raise Unsupported(f"layers, heads and width must be at least 1, got {layers}, {heads} and {width}")
        if width % heads:
            raise Unsupported(f"width must be a multiple of heads, got {width} and {heads}")
        if parts.position.reads_tokens and not isinstance(signature.inputs, Tokens):
            raise Unsupported(f"{parts.position.name} reads token ids, and the task has vectors")
        return Decoder(signature, parts, layers, heads, width, mlp)
