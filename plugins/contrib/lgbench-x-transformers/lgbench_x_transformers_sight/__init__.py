"""What probes of lgbench see in models with layers of `x-transformers`.

A package beside lgbench_x_transformers, since the identity of runs follows from all sources of that package.

Shapes: n contexts, T positions, W the width of the residual stream; in attention H heads of D features, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lgbench import Role
from lgbench.internals.sight import Sight, agrees, attention_weights, scale


def sight_of(model: nn.Module, where: torch.device, tolerance: float) -> Sight | None:
    """Sight of the only stack of x-transformers layers in a model; None for no stack or several stacks."""
    from x_transformers.x_transformers import AttentionLayers

    stacks = [module for module in model.modules() if isinstance(module, AttentionLayers)]
    return AttentionLayersSight(model, stacks[0], where, tolerance) if len(stacks) == 1 else None


class AttentionLayersSight(Sight):
    """Sight of x-transformers layers: attentions, and sublayers with an additive residual connection."""

    def __init__(self, model: nn.Module, layers: Any, where: torch.device, tolerance: float) -> None:
        super().__init__(model, where, tolerance)
        self.layers = layers
        self._befores: dict[int, Tensor] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context with hooks on all layers."""
        from x_transformers.attend import Attend
        from x_transformers.x_transformers import Residual

        with ExitStack() as hooks:
            for number, (norms, block, residual) in enumerate(self.layers.layers):
                layer = number // self.layers.len_default_block + 1
                attends = [each for each in block.modules() if isinstance(each, Attend)]
                for attend in attends:
                    see = partial(self._see_attention, layer)
                    hooks.enter_context(attend.register_forward_hook(see, with_kwargs=True))
                known = [norm for norm in norms if norm is not None]
                for norm in known:
                    hooks.enter_context(norm.register_forward_pre_hook(partial(self._see_norm, number)))
                if type(residual) is Residual:
                    end = partial(self._end, number, "attention" if attends else "mlp", layer)
                    after = norms[2]  # the norm after the residual connection
                    hooks.enter_context(residual.register_forward_hook(partial(self._see_sum, number, None if after else end)))
                    if after:
                        hooks.enter_context(after.register_forward_hook(lambda norm, given, answer, end=end: end(answer)))
            if isinstance(self.layers.final_norm, nn.Module):
                hooks.enter_context(self.layers.final_norm.register_forward_pre_hook(self._see_final))
            yield

    def _see_attention(
        self, layer: int, attend: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any], answer: tuple[Tensor, Any]
    ) -> None:
        q, k, v, *others = given
        output, about = answer
        positions = q.shape[-2]
        for place in self._places:
            row = positions - 1 - place
            if row < 0:
                continue

            def take(values: Tensor, row: int = row) -> Tensor:
                """Output of one query. `forward` skips the module's hooks, to which this function belongs."""
                found: Tensor = attend.forward(q, k, values, *others, **named)[0]
                return found[..., row : row + 1, :]

            def weights_of(try_others: bool, row: int = row) -> Tensor | None:
                told = about.post_softmax_attn  # None from a fused kernel; with mixed heads, not the weights of the output
                weights: Tensor | None = None if told is None else told[..., row, :]
                if weights is None or not self._make(weights, v, output[..., row : row + 1, :]):
                    weights = attention_weights(take, v, self.tolerance, try_others)
                    if weights is None:
                        return None

                # Memory keys before the context are no positions.
                return weights[..., v.shape[-2] - positions :][..., : row + 1]

            self._see_query(layer, place, output[..., row, :], weights_of)

    def _make(self, weights: Tensor, v: Tensor, taken: Tensor) -> bool:
        """Whether weights (n, H, K) times values (n, H, K, D) equal the output of a query, (n, H, 1, D)."""
        return weights.shape == v.shape[:-1] and agrees(weights, v, taken, scale(weights, v) * self.tolerance)

    def _see_sum(self, number: int, end: Any, residual: nn.Module, given: tuple[Any, ...], answer: Tensor) -> None:
        """Hook of a residual connection. Its arguments are the sublayer's output and the residual stream."""
        self._befores[number] = given[1]
        if end is not None:
            end(answer)

    def _end(self, number: int, role: Role, layer: int, after: Tensor) -> None:
        self._add_sublayer(number, role, layer, self._befores.pop(number), after)
