"""Sequence of modules with types for mypy, for architectures and norm schemes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from lgbench.contracts import TensorModule


class Chain(nn.Sequential):
    """`nn.Sequential` with types for mypy: each module maps a tensor to a tensor.

    At run time it is `nn.Sequential`. For mypy a :class:`lgbench.TensorModule` is a callable and no `nn.Module`, so mypy
    rejects it in `nn.Sequential`.
    """

    if TYPE_CHECKING:

        def __init__(self, *modules: TensorModule) -> None: ...

        def __call__(self, x: Tensor, /) -> Tensor: ...

        def forward(self, x: Tensor, /) -> Tensor: ...
