"""The precision in which models compute. Weights, optimizer, averages, losses and scores are float32 or wider in any case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


def computing(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Inside, models compute in "float32" as they are, or their products in "bfloat16" by torch's automatic mixed precision."""
    if precision == "float32":
        return nullcontext()
    inside = ExitStack()
    # Without its cache, which would keep weights of one step for the next where a step is captured or traced.
    inside.enter_context(torch.autocast(device.type, getattr(torch, precision), cache_enabled=False))
    if device.type == "cpu":
        inside.enter_context(_WideNorms())
    return inside


def answered(compute: Callable[[Tensor], Tensor], inputs: Tensor, precision: str) -> Tensor:
    """The logits of a model that computes in a precision, in float32 or wider."""
    with computing(precision, inputs.device):
        found = compute(inputs)
    return found.to(torch.promote_types(found.dtype, torch.float32))


class _WideNorms(TorchFunctionMode):
    """Norms in float32, as automatic mixed precision has them on a GPU. On a CPU they mix types, which vmap cannot take."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function not in _NORMS:
            return function(*arguments, **(keywords or {}))
        with torch.autocast("cpu", enabled=False):
            first, *others = arguments
            return function(first.float(), *others, **(keywords or {}))


_NORMS = frozenset({F.layer_norm, torch.layer_norm, F.rms_norm, F.group_norm, torch.group_norm})
