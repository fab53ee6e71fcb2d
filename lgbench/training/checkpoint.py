"""Checkpoints: the state of a population in training, in one file that is replaced as a whole."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lgbench.errors import RunFileError


class Checkpoint:
    """The latest saved state of one population; data need no state, since every chunk has a generator of its own."""

    def __init__(self, path: Path, every: float) -> None:
        """`every`: seconds between two savings."""
        self.path, self.every = path, every
        self._latest = time.monotonic()

    def restore(self, tensors: Mapping[str, Tensor]) -> int:
        """Copy the saved state into `tensors`; the number of steps done, 0 where nothing was saved.

        Raises RunFileError, with `tensors` as they were, where the file is not a state of theirs.
        """
        if not self.path.exists():
            return 0
        try:
            with safe_open(self.path, "pt") as file:
                saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it has no iterator
                step = int(file.metadata()["step"])
        except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
            raise RunFileError(f"the checkpoint {self.path} cannot be read: {error}") from error
        kinds = [{name: (t.shape, t.dtype) for name, t in state.items()} for state in (saved, tensors)]
        if kinds[0] != kinds[1]:
            raise RunFileError(f"the checkpoint {self.path} is of other models")
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
        return step

    def due(self, last: bool) -> bool:
        """Whether it is time to save; after the last step only what took long enough to be saved before."""
        return time.monotonic() - self._latest >= self.every or (last and self.path.exists())

    def save(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Save the state after `step` steps. A kill at any moment leaves the state before or this one."""
        partial = self.path.with_suffix(".partial")
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial, metadata={"step": str(step)})
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(self.path)
        self._latest = time.monotonic()
