"""Checkpoints: the state of a population in training, in one file that is replaced as a whole."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lgbench.errors import RunFileError


class Progress(NamedTuple):
    """How far a training has come, and what its run files will say of the way there."""

    step: int = 0
    compiled: bool = False
    """Whether the steps were compiled."""
    seconds: float = 0.0
    """What the steps took, in all processes that had a part in them."""


class Checkpoint:
    """The latest saved state of one population; data need no state, since every chunk has a generator of its own."""

    def __init__(self, path: Path, every: float) -> None:
        """`every`: seconds between two savings."""
        self.path, self.every = path, every
        self._latest = time.monotonic()

    def restore(self, tensors: Mapping[str, Tensor]) -> Progress:
        """Copy the saved state into `tensors`; no step is done where nothing was saved.

        Raises RunFileError, with `tensors` as they were, where the file is not a state of theirs.
        """
        if not self.path.exists():
            return Progress()
        try:
            with safe_open(self.path, "pt") as file:
                saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it has no iterator
                progress = _progress(file.metadata() or {})
        except (SafetensorError, OSError, ValueError) as error:
            raise RunFileError(f"the checkpoint {self.path} cannot be read: {error}") from error
        kinds = [{name: (t.shape, t.dtype) for name, t in state.items()} for state in (saved, tensors)]
        if kinds[0] != kinds[1]:
            raise RunFileError(f"the checkpoint {self.path} is of other models")
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
        return progress

    def due(self, last: bool) -> bool:
        """Whether it is time to save; after the last step only what took long enough to be saved before."""
        return time.monotonic() - self._latest >= self.every or (last and self.path.exists())

    def save(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Save the state of a training that has come so far. A kill at any moment leaves the state before or this one."""
        partial = self.path.with_suffix(".partial")
        metadata = {name: str(value) for name, value in progress._asdict().items()}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial, metadata=metadata)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(self.path)
        self._latest = time.monotonic()


def _progress(metadata: Mapping[str, str]) -> Progress:
    """Raises ValueError where something is not said, as in what an older lgbench saved, or is no number."""
    missing = [name for name in Progress._fields if name not in metadata]
    if missing:
        raise ValueError(f"it does not say {' and '.join(missing)}")
    return Progress(int(metadata["step"]), metadata["compiled"] == str(True), float(metadata["seconds"]))
