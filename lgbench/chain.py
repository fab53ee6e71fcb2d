"""For architectures: modules one after the other, among them those of a norm scheme, with types that mypy checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from lgbench.contracts import TensorModule


class Chain(nn.Sequential):
    """`nn.Sequential` that mypy checks: every module takes one tensor and gives one.

    When it runs it is `nn.Sequential`. mypy knows of a :class:`lgbench.TensorModule` how it is called, not that it is an
    `nn.Module`, so `nn.Sequential` would not take it there.
    """

    if TYPE_CHECKING:

        def __init__(self, *modules: TensorModule) -> None: ...

        def __call__(self, x: Tensor, /) -> Tensor: ...

        def forward(self, x: Tensor, /) -> Tensor: ...
