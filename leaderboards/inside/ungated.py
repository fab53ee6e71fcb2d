"""Linear recurrences without the gate on their output, as an lgbench plugin: foils of the finding on gated DeltaNet.

    lgbench run --plugin leaderboards/inside/ungated.py --arch rwkv-7-no-gate,mamba-2-no-gate,mlstm-no-gate ...

What is left starts with the same weights as in the whole model. Runs hold the hash of ablations.py, so these entries have a
file of their own.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec, hookimpl
from lgbench_linear.layers import split
from lgbench_linear.mamba import Mamba2
from lgbench_linear.mlstm import Mlstm
from lgbench_linear.recurrence import NEEDS, Recurrence
from lgbench_linear.rwkv import Rwkv7

ONE_OF_SILU = 1.2784645
"""The number whose SiLU is 1."""


class Open(nn.Module):
    """A constant in place of a gate: (B, T, W), or (B, H, T, D) where `heads` is given."""

    def __init__(self, value: float, heads: int | None) -> None:
        super().__init__()
        self.value, self.heads = value, heads

    def forward(self, x: Tensor) -> Tensor:
        opened = torch.full_like(x, self.value)
        return opened if self.heads is None else split(opened, self.heads)


@final
class Ungated(Attention):
    """A linear recurrence whose output gate is 1. `value` is what the recurrence turns into that."""

    needs = NEEDS

    def __init__(self, whole: Mamba2 | Mlstm | Rwkv7, gate: str, value: float, of_heads: bool = False) -> None:
        self.whole, self.gate, self.value, self.of_heads = whole, gate, value, of_heads
        self.name, self.about = f"{whole.name}-no-gate", f"{whole.name} without the gate on its output."

    def build(self, spec: AttentionSpec) -> Recurrence:
        module: Recurrence = self.whole.build(spec)
        setattr(module, self.gate, Open(self.value, spec.heads if self.of_heads else None))
        return module


@hookimpl
def lgbench_attentions() -> list[Attention]:
    return [
        Ungated(Mamba2(), "gate", ONE_OF_SILU),
        Ungated(Mlstm(), "output_gate", math.inf),
        Ungated(Rwkv7(), "gate", 1.0, of_heads=True),
    ]
