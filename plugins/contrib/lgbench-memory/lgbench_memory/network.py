"""What the three networks share: the controller, the embedding before it, and the logits after it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lgbench import Answers, NormScheme, Signature, SublayerSpec, TensorModule, Tokens
from lgbench.chain import Chain


class Controller(nn.Module):
    """h <- tanh(W x + U [h, r] + b), with the input x (B, X), the state h (B, H) and what is read of a memory, r (B, R).

    Weights start as those of nn.Linear, uniform in +-1 / sqrt(X) and +-1 / sqrt(H + R), b as W. The state starts at zero.
    """

    def __init__(self, inputs: int, width: int, reads: int = 0) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, width)
        self.recurrent = nn.Linear(width + reads, width, bias=False)

    def start(self, x: Tensor) -> Tensor:
        """State before the first position, (B, H)."""
        return x.new_zeros(len(x), self.input.out_features)

    def step(self, seen: Tensor, *before: Tensor) -> Tensor:
        """State after a position, (B, H), from W x + b of the position, the state before it, and what is read."""
        return torch.addmm(seen, torch.cat(before, -1), self.recurrent.weight.T).tanh()


class Network(nn.Module):
    """Embedding, recurrent layers one upon the other, logits from the last layer's states."""

    def __init__(self, signature: Signature, norm: NormScheme, width: int, *layers: TensorModule) -> None:
        super().__init__()
        inputs = signature.inputs
        self.embed = Chain(
            nn.Embedding(inputs.size, width) if isinstance(inputs, Tokens) else nn.Linear(inputs.width, width),
            norm.embed(width),
        )
        specs = [SublayerSpec("attention", number, len(layers), width) for number in range(1, len(layers) + 1)]
        self.layers = Chain(*(Chain(layer, norm.output(spec)) for layer, spec in zip(layers, specs, strict=True)))
        self.logits = nn.Linear(width, signature.classes)
        self.answers = signature.answers

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T) or (B, T, F) -> (B, T, V), or (B, 1, V) where only the last position answers."""
        x = self.layers(self.embed(inputs))
        logits: Tensor = self.logits(x[:, -1:] if self.answers is Answers.LAST else x)
        return logits
