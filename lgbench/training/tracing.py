"""Tracing: the operators of a function of tensors as one graph; for open sizes too, where it does the same for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode

Varying = Mapping[int, int]
"""By the place of an argument, the dimension whose size varies from call to call. Such an argument is contiguous."""

NOTHING: Varying = {}

SMALLEST = 2
"""Sizes that vary are at least this: a dimension of size 1 may be broadcast, so no graph is for 1 and for other sizes."""


class SizesMatter(Exception):
    """A function does other things for other sizes, or cannot be traced without knowing them."""


def traced(function: Callable[..., Any], arguments: Sequence[Tensor], varying: Varying = NOTHING) -> fx.GraphModule:
    """The operators of a function as one graph. Computes nothing.

    Raises SizesMatter where it is not the same for all sizes of what varies, and an error of any other kind where there is no
    one graph.
    """
    if varying:
        return _for_all_sizes(function, arguments, varying)
    with torch.no_grad():
        return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)


def _for_all_sizes(function: Callable[..., Any], arguments: Sequence[Tensor], varying: Varying) -> fx.GraphModule:
    sizes = ShapeEnv()
    mode = FakeTensorMode(shape_env=sizes, allow_non_fake_inputs=True)
    stand_ins = [_stand_in(mode, argument, varying.get(place)) for place, argument in enumerate(arguments)]
    with torch.no_grad(), mode, _SplitLinear():
        try:
            graph = make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)(*stand_ins)
        except Exception as error:  # the function may raise anything
            raise SizesMatter(str(error)) from error
    if sizes.guards or sizes.replacements:
        raise SizesMatter("it asks for a size, and does other things for others")
    return graph


def _stand_in(mode: FakeTensorMode, argument: Tensor, varies: int | None) -> Tensor:
    """An argument without numbers. The size of one dimension is open."""
    if varies is None:
        return mode.from_tensor(argument, static_shapes=True)
    sizes = [DimDynamic.DYNAMIC if place == varies else DimDynamic.STATIC for place in range(argument.ndim)]
    return mode.from_tensor(torch.empty_like(argument), symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


class _SplitLinear(TorchFunctionMode):
    """Inside, a linear map with a bias is one without it and a sum. Under vmap the former needs its sizes as numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear:
            return func(*args, **(kwargs or {}))
        given = dict(zip(("input", "weight", "bias"), args, strict=False)) | (kwargs or {})
        found = F.linear(given["input"], given["weight"])
        return found if given.get("bias") is None else found + given["bias"]
