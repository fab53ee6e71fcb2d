"""Position ids of a task: read from the inputs of a model, and given to the modules of its position code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from lgbench.contracts import Parts, Position, Signature, Tokens
from lgbench.errors import Unsupported

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
