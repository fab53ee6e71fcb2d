"""The library's decoder between an embedding and logits."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from lgbench import Answers, Signature, Tokens

Options = Mapping[str, Any]
"""Keyword arguments of `x_transformers.Decoder`."""


class Network(nn.Module):
    """Embedding, `x_transformers.Decoder`, logits, with the initial weights that the library gives each of them."""

    def __init__(self, signature: Signature, layers: int, heads: int, width: int, options: Options) -> None:
        super().__init__()
        inputs = signature.inputs
        self.embed = nn.Embedding(inputs.size, width) if isinstance(inputs, Tokens) else nn.Linear(inputs.width, width)
        if isinstance(inputs, Tokens):
            nn.init.kaiming_normal_(self.embed.weight)  # as TransformerWrapper does
        self.body = decoder(layers, heads, width, options)
        self.logits = nn.Linear(width, signature.classes, bias=False)
        self.only_last = signature.answers is Answers.LAST

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T) or (B, T, F) -> (B, T, V), or (B, 1, V) where only the last position answers."""
        x = self.body(self.embed(inputs))
        logits: Tensor = self.logits(x[:, -1:] if self.only_last else x)
        return logits


def decoder(layers: int, heads: int, width: int, options: Options) -> nn.Module:
    """The library's decoder: causal, without dropout. Raises AssertionError, with its reason, for sizes that it cannot have.

    One thing of it is put right: linear biases are made anew for each input, where the library keeps those of the longest.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's import
        from x_transformers import Decoder
        from x_transformers.x_transformers import AlibiPositionalBias

    # Without `project_out`, a model with one head would have no output projection, and one with two heads would.
    own = {"attn_dim_head": width // heads, "attn_project_out": True, "verbose": False}
    body: nn.Module = Decoder(dim=width, depth=layers, heads=heads, **(own | dict(options)))
    for module in body.modules():
        if isinstance(module, AlibiPositionalBias):
            module.register_forward_hook(_forget_bias)
    return body


def _forget_bias(module: nn.Module, arguments: Any, bias: Tensor) -> None:
    module.register_buffer("bias", None, persistent=False)
