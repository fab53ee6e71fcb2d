"""The cost of a training step: operators, floating-point operations and bytes, counted while it runs.

It decides how many models are trained together, and whether the step is compiled.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

STACK_BYTES = 2**20
"""On a CPU one operator's result, of all models of a stack, has about so many bytes. Where freed memory is kept, stacks of 1 to
12 Tomita models train within 7 % of each other (benchmarks/stacks.py), so small ones are taken, which fill all workers."""

SHARE_OF_MEMORY = 0.5
"""The share of free memory that a population may fill. The rest is for the allocator, for evaluation, and for others."""


@dataclass(frozen=True)
class Cost:
    """One training step of one model. Flops and bytes grow with the population, operators do not."""

    operators: int
    flops: int
    written: int
    """Bytes of all results that operators made."""
    peak: int
    """Bytes alive at once, at most."""
    largest: int
    """Bytes of the largest result of an operator."""
    kept: int
    """Bytes that stay from step to step: weights, moments, averages, data drawn ahead."""


@dataclass(frozen=True)
class Compiling:
    """Seconds that compiling costs once, and seconds that it saves in each step; measured by benchmarks/compilation.py."""

    start: float
    per_operator: float
    saved_per_operator: float
    saved_per_byte: float

    def seconds(self, cost: Cost, programs: int) -> float:
        """Seconds to compile the step for so many shapes of batches."""
        return programs * (self.start + self.per_operator * cost.operators)

    def saved(self, cost: Cost, models: int, steps: int) -> float:
        """Seconds that compiling saves in a whole training of one stack."""
        return steps * (self.saved_per_operator * cost.operators + self.saved_per_byte * cost.written * models)


COMPILING: Mapping[str, Compiling] = {
    "cpu": Compiling(start=10.0, per_operator=0.022, saved_per_operator=19e-6, saved_per_byte=200e-12),
    # Not measured yet. Launching a captured step costs nothing, so compiling saves memory traffic and gaps between kernels.
    "cuda": Compiling(start=20.0, per_operator=0.05, saved_per_operator=1e-6, saved_per_byte=0.5e-12),
}


def measure(step: Callable[[], object], kept: int) -> Cost:
    """The cost of `step`, which is run once."""
    with FlopCounterMode(display=False) as counter, _Meter() as meter:
        step()
    return Cost(meter.operators, counter.get_total_flops(), meter.written, meter.peak, meter.largest, kept)


def stack_size(cost: Cost, device: torch.device) -> float:
    """How many models to train together, where memory is free for more. From counts alone: the same on every CPU."""
    return max(1, STACK_BYTES // cost.largest) if device.type == "cpu" else math.inf


def models_that_fit(cost: Cost, device: torch.device) -> int:
    """How many models can be trained together in the free memory; at least one."""
    return max(1, int(SHARE_OF_MEMORY * free_memory(device) / (cost.peak + cost.kept)))


def free_memory(device: torch.device) -> int:
    """Free bytes of a device, with those that torch keeps for reuse."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    return int(psutil.virtual_memory().available)


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators and follows the memory that their results hold."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators = self.written = self.peak = self.alive = self.largest = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        self.operators += func.namespace == "aten"  # others ask a tensor without numbers for its device
        for result in results if isinstance(results, tuple | list) else [results]:
            if isinstance(result, Tensor):
                self._follow(result.untyped_storage())
        return results

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.written += storage.nbytes()
            self.alive += storage.nbytes()
            self.largest = max(self.largest, storage.nbytes())
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)
