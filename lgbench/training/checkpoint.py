"""Checkpoints: the state of a population in training, in one file that is replaced as a whole."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lgbench.atomic_files import remove_partial, replaced
from lgbench.errors import RunFileError


class TrainingProgress(NamedTuple):
    """The progress of a training, for its checkpoint and its run files."""

    step: int = 0
    compiled: bool = False
    """Whether the steps were compiled."""
    seconds: float = 0.0
    """Seconds that the steps took, in all processes that did some of them."""


class Checkpoint:
    """The latest saved state of one population. The data stream has no state: every chunk has a generator of its own."""

    def __init__(self, path: Path, every: float) -> None:
        """`every`: seconds between two savings."""
        self.path, self.every = path, every
        self._latest = time.monotonic()

    def restore(self, tensors: Mapping[str, Tensor]) -> TrainingProgress:
        """Copy the saved state into `tensors`; no step is done where nothing was saved.

        A half-written file that a killed process left is removed. Raises RunFileError, with `tensors` as they were, where the
        file is not a state of theirs.
        """
        remove_partial(self.path)
        if not self.path.exists():
            return TrainingProgress()
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
        """Whether it is time to save. The last step is saved only if an earlier one was."""
        return time.monotonic() - self._latest >= self.every or (last and self.path.exists())

    def save(self, progress: TrainingProgress, tensors: Mapping[str, Tensor]) -> None:
        """Save the state of a training. A kill at any moment leaves the earlier state or this one, whole."""
        metadata = {name: str(value) for name, value in progress._asdict().items()}
        with replaced(self.path) as partial:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial, metadata=metadata)
        self._latest = time.monotonic()


def _progress(metadata: Mapping[str, str]) -> TrainingProgress:
    """Raises ValueError where a value is missing, as in checkpoints of an older lgbench, or is no number."""
    missing = [name for name in TrainingProgress._fields if name not in metadata]
    if missing:
        raise ValueError(f"its metadata lack {' and '.join(missing)}")
    return TrainingProgress(int(metadata["step"]), metadata["compiled"] == str(True), float(metadata["seconds"]))
