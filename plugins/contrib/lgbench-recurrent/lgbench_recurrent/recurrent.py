"""The classic recurrent networks: embedding, recurrent layers, logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from lgbench import Answers, Architecture, NormScheme, Parts, Signature, SublayerSpec, Tokens, Unsupported
from lgbench.chain import Chain
from lgbench_recurrent.layers import GruLayer, LstmLayer, RecurrentLayer

LayerOfWidth = Callable[[int], RecurrentLayer]


class RecurrentNetwork(nn.Module):
    """Embedding, recurrent layers one upon the other, logits from the last layer's states."""

    def __init__(self, signature: Signature, norm: NormScheme, layer: LayerOfWidth, layers: int, width: int) -> None:
        super().__init__()
        inputs = signature.inputs
        self.embed = Chain(
            nn.Embedding(inputs.size, width) if isinstance(inputs, Tokens) else nn.Linear(inputs.width, width),
            norm.embed(width),
        )
        specs = [SublayerSpec("attention", number, layers, width) for number in range(1, layers + 1)]
        self.layers = Chain(*(Chain(layer(width), norm.output(spec)) for spec in specs))
        self.logits = nn.Linear(width, signature.classes)
        self.answers = signature.answers

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T) or (B, T, F) -> (B, T, V), or (B, 1, V) where only the last position answers."""
        x = self.layers(self.embed(inputs))
        logits: Tensor = self.logits(x[:, -1:] if self.answers is Answers.LAST else x)
        return logits


@final
@dataclass(frozen=True)
class Recurrent(Architecture):
    """Recurrent layers of one kind, without a residual connection, dropout or attention.

    A norm scheme acts on the embedding and on each layer's output alone. The classic models have no norm.
    """

    name: str
    layer: LayerOfWidth
    about: str
    defaults = {"norm": "no-norm"}
    ranges = {"layers": (1, 256), "width": (1, 16384)}

    def build(self, signature: Signature, parts: Parts, *, layers: int = 2, width: int = 32) -> RecurrentNetwork:
        if min(layers, width) < 1:
            raise Unsupported(f"layers and width must be at least 1, got {layers} and {width}")
        return RecurrentNetwork(signature, parts.norm, self.layer, layers, width)


ARCHITECTURES = (
    Recurrent(
        "lstm",
        LstmLayer,
        "Long short-term memory (Hochreiter & Schmidhuber 1997, Gers et al. 2000): i, f, o = sigmoid(W x + U h + b), "
        "g = tanh(W x + U h + b), c <- f * c + i * g, h <- o * tanh(c)",
    ),
    Recurrent(
        "gru",
        GruLayer,
        "Gated recurrent units (arXiv 1406.1078), as torch.nn.GRU: r, z = sigmoid(W x + U h + b), "
        "n = tanh(W x + b + r * (U h + b')), h <- (1 - z) * n + z * h",
    ),
)
