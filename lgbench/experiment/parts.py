"""Parts of a model as settings and tasks ask for them: norm schemes with dropout, and position codes that read position ids."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from lgbench.chain import Chain
from lgbench.contracts import NormScheme, Parts, Position, Signature, SublayerSpec, TensorModule, Tokens
from lgbench.errors import Unsupported
from lgbench.noise import Noise


class Dropout(nn.Module):
    """Output of a sublayer, (B, T, W), in training with a share `rate` of zeros and the rest divided by 1 - `rate`.

    The harness draws the mask, so `torch.nn.Dropout` is no choice: its numbers come from torch's global generator, and depend
    on the population and on interruptions.
    """

    def __init__(self, rate: float, batch: int, positions: int, width: int) -> None:
        """`positions`: largest T in training."""
        super().__init__()
        self.rate = rate
        self.noise = Noise(batch, positions, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, W) -> the same shape."""
        if not self.training:
            return x
        # index_select, because a slice compares T with the drawn positions, and no program would then serve all lengths.
        noise = self.noise().index_select(-2, torch.arange(x.shape[-2], device=x.device))
        masked: Tensor = x * (noise >= self.rate) / (1 - self.rate)
        return masked


def with_dropout(scheme: NormScheme, rate: float, batch: int, positions: int) -> NormScheme:
    """Copy of a norm scheme with dropout on the output of each sublayer, before the norm on the output and the residual sum."""

    def dropout(spec: SublayerSpec) -> Dropout:
        return Dropout(rate, batch, positions, spec.width)

    def residual(spec: SublayerSpec, sublayer: TensorModule) -> TensorModule:
        return scheme.residual(spec, Chain(sublayer, dropout(spec)))

    def output(spec: SublayerSpec) -> TensorModule:
        return Chain(dropout(spec), scheme.output(spec))

    own = copy.copy(scheme)
    vars(own).update(residual=residual, output=output)  # frozen dataclasses too
    return own


def has_dropout(model: object) -> bool:
    """Whether some sublayer of a model has dropout."""
    return any(isinstance(module, Dropout) for module in cast(nn.Module, model).modules())


METHODS = ("embed", "rotate", "bias")
"""Methods of a position code that make modules."""


@dataclass
class CurrentIds:
    """Position ids of the forward pass that runs, (B, T) int64."""

    found: Tensor | None = None


class WithIds(nn.Module):
    """Module of a position code, called with the current position ids."""

    def __init__(self, module: nn.Module, ids: CurrentIds) -> None:
        super().__init__()
        self.module, self.ids = module, ids

    def forward(self, *given: Tensor, **tokens: Tensor) -> Any:
        """As the module, for tensors of K positions."""
        return self.module(*given, positions=self.ids.found, **tokens)


class TokensAndIds(nn.Module):
    """Model on tokens with position ids, from a model on tokens alone."""

    def __init__(self, model: nn.Module, ids: CurrentIds) -> None:
        super().__init__()
        self.model, self.ids = model, ids

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, 2) int64 -> logits (B, A, V)."""
        tokens, self.ids.found = inputs.unbind(-1)
        logits: Tensor = self.model(tokens)
        self.ids.found = None
        return logits


def with_position_ids(build: Callable[[Signature, Parts], nn.Module], signature: Signature, parts: Parts) -> nn.Module:
    """Model for a signature. Architectures see tokens alone; position ids go to the position code, if any.

    Raises Unsupported for a position code that acts and cannot read ids.
    """
    inputs = signature.inputs
    if not isinstance(inputs, Tokens) or inputs.positions is None:
        return build(signature, parts)
    ids = CurrentIds()
    if parts.position is not None:
        parts = replace(parts, position=_reading(parts.position, ids, inputs.positions))
    return TokensAndIds(build(replace(signature, inputs=Tokens(inputs.size)), parts), ids)


def _reading(code: Position, ids: CurrentIds, count: int) -> Position:
    """Copy of a position code whose modules get the current ids, of which there are `count`."""
    acting = [method for method in METHODS if getattr(type(code), method) is not getattr(Position, method)]
    if not acting:
        return code
    if not code.reads_positions:
        raise Unsupported(
            f"{code.name} reads no position ids, and the task gives them: use a position code that reads them, or nope"
        )
    own = copy.copy(code)

    def told(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any) -> WithIds | None:
            module = make(*arguments)
            return None if module is None else WithIds(module, ids)

        return made

    vars(own).update({method: told(getattr(code, method)) for method in ("rotate", "bias")})  # frozen dataclasses too
    vars(own)["embed"] = told(lambda width, positions: code.embed(width, count))
    return own
