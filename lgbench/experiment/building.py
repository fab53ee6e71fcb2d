"""Building a model only to see that it can be built: one that the memory does not hold is refused before it fills it."""

from __future__ import annotations

import weakref
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lgbench.errors import Unsupported

MAX_TENSORS = 50_000
"""Tensors that building a model may make: those of some thousand layers, which takes seconds."""

UNFILLED = 2**20
"""Tensors with more numbers than this keep the numbers that the memory happens to have, since filling them takes seconds."""


class Trial(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, a model can be built whose weights mean nothing.

    Raises Unsupported, before the memory is filled, where its tensors together take more than is free, or where they are
    too many. Tensors that are large are not filled: memory that nobody writes to is not taken.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._free = int(psutil.virtual_memory().available)
        self._made = self._alive = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = args[0] if args else None
        if isinstance(first, Tensor) and first.numel() > UNFILLED and func._schema.name.endswith("_"):
            return first
        if isinstance(first, list | tuple) and all(isinstance(size, int) for size in first):
            self._require(torch.Size(first).numel() * ((kwargs or {}).get("dtype") or torch.get_default_dtype()).itemsize)
        results = func(*args, **(kwargs or {}))
        for result in results if isinstance(results, tuple | list) else [results]:
            if isinstance(result, Tensor):
                self._follow(result.untyped_storage())
        return results

    def _require(self, more: int) -> None:
        if self._alive + more > self._free:
            size, free = gigabytes(self._alive + more), gigabytes(self._free)
            raise Unsupported(f"its weights take {size} or more, and {free} of memory are free: make the model smaller")
        if self._made > MAX_TENSORS:
            raise Unsupported(f"it has more than {MAX_TENSORS} tensors: make the model smaller")

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self._made += 1
            self._alive += storage.nbytes()
            self._require(0)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self._alive -= self._sizes.pop(key)


def gigabytes(size: int) -> str:
    """A number of bytes for a reader.

    >>> gigabytes(123_456_789_000), gigabytes(1_234_000_000), gigabytes(1_000_000)
    ('123 GB', '1.2 GB', '0.001 GB')
    """
    return f"{size / 1e9:.0f} GB" if size >= 10e9 else f"{size / 1e9:.2g} GB"
