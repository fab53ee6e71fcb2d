"""Attention bias calibration: a bias that keeps attention on the lines on which a trained model has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from lgbench import AttentionSpec, JsonFile, Position, Unsupported
from lgbench_positions.standing import positions as standing
from lgbench_positions.standing import require_self_attention

OUTSIDE = -1e4
"""Bias outside of all lines. It is finite, so a query that sees no line attends as without a bias."""

Lines = Mapping[str, float]
"""Bias by line: by i - j for a diagonal, by j for a column."""


def table(heads: Sequence[Lines], first: int, last: int) -> Tensor:
    """Bias of each head (H, last - first + 1) at the lines from `first` to `last`."""
    found = torch.full((len(heads), last - first + 1), OUTSIDE)
    for row, lines in zip(found, heads, strict=True):
        for line, bias in lines.items():
            row[int(line) - first] = bias
    return found


class BiasAlongLines(nn.Module):
    """Bias max(D_h[i - j], C_h[j]), and 0 in a head without lines."""

    diagonals: Tensor
    columns: Tensor

    def __init__(self, heads: Sequence[Mapping[str, Lines]]) -> None:
        super().__init__()
        diagonals, columns = ([head.get(kind, {}) for head in heads] for kind in ("diagonals", "columns"))
        # One line more than those with a bias, for all that are further away.
        reach = 1 + max((abs(int(line)) for lines in diagonals for line in lines), default=0)
        last = 1 + max((int(line) for lines in columns for line in lines), default=0)
        free = torch.tensor([not any(head.values()) for head in heads])[:, None]
        self.register_buffer("diagonals", table(diagonals, -reach, reach).masked_fill(free, 0))
        self.register_buffer("columns", table(columns, 0, last).masked_fill(free, 0))

    def forward(self, q: Tensor, k: Tensor, positions: Tensor | None = None) -> Tensor:
        """q (B, H, Q, D), k (B, H, K, D) -> (H, Q, K), or (B, H, Q, K) with position ids (B, K)."""
        queries, keys = (places.long() for places in standing(q, k, positions))
        reach, last = self.diagonals.shape[1] // 2, self.columns.shape[1] - 1
        apart = (queries[..., :, None] - keys[..., None, :]).clamp(-reach, reach) + reach
        bias = torch.maximum(self.diagonals[:, apart], self.columns[:, keys.clamp(max=last)].unsqueeze(-2)).to(q.dtype)
        return bias if positions is None else bias.squeeze(2).transpose(0, 1)


@final
@dataclass(frozen=True)
class Calibrated(Position):
    """Attention bias calibration (ABC): a fixed bias along the lines on which a trained model attends (arXiv 2310.11984).

    Head h adds max(D_h[i - j], C_h[j]) to its logits: the share of attention that a model without the bias has on the diagonal
    i - j, or on the column j, and -10000 outside of the lines that stand out. Lines go on beyond the training length. With
    position ids i and j are ids. `lgbench calibrate-bias` finds the lines in the saved weights of a run, and writes the file
    for `position.calibration`. The README of the pack says what is our choice.
    """

    calibration: JsonFile = JsonFile()
    name = "abc"
    reads_positions = True

    def configured(self, *, calibration: JsonFile = JsonFile()) -> Self:  # noqa: B008
        return type(self)(calibration)

    def bias(self, spec: AttentionSpec) -> BiasAlongLines:
        require_self_attention(self.name, spec)
        layers = self._layers()
        if (made := [len(heads) for heads in layers]) != (own := [spec.heads] * spec.layers):
            raise Unsupported(
                f"the calibration of abc has {made} heads by layer, and the model {own}: calibrate with such a model"
            )
        return BiasAlongLines(layers[spec.layer - 1])

    def _layers(self) -> Sequence[Sequence[Mapping[str, Lines]]]:
        """Lines by layer and head."""
        if not self.calibration:
            raise Unsupported(
                "abc needs biases: --set position.calibration=FILE.json, with a file that `lgbench calibrate-bias` wrote"
            )
        content: Any = json.loads(self.calibration)
        try:
            return [[_lines(**head) for head in layer] for layer in content["layers"]]
        except (KeyError, TypeError, ValueError, AttributeError):
            form = '{"layers": [[{"diagonals": {"1": 0.9}, "columns": {}}]]}, a list of heads for each layer'
            raise Unsupported(f"the calibration of abc has another form than {form}") from None


def _lines(diagonals: Lines = MappingProxyType({}), columns: Lines = MappingProxyType({})) -> Mapping[str, Lines]:
    """Lines of one head by kind, with numbers."""
    kinds = {"diagonals": diagonals, "columns": columns}
    return {kind: {str(int(line)): float(bias) for line, bias in lines.items()} for kind, lines in kinds.items()}
