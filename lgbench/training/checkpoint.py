"""Checkpoints: the state of a population in training, in one file that is replaced as a whole."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lgbench.atomic_files import replaced
from lgbench.errors import RunFileError


class TrainingProgress(NamedTuple):
    """The progress of a training, for its checkpoint and its run files."""

    step: int = 0
    models: int = 0
    """The size of the stack."""
    compiled: bool = False
    """Whether the steps were compiled."""
    seconds: float = 0.0
    """Seconds that the steps took, in all processes that did some of them."""
    measured: Mapping[int, Any] = {}
    """Measurements that were made after some steps, by step, as values that JSON can hold."""


WORTH_SECONDS = 10.0
"""A training that took so long is saved at its end, for what comes after it may fail, such as writing the run files."""


class Checkpoint:
    """The latest saved state of one population. The data have no state: a step decides them."""

    def __init__(self, path: Path, every: float) -> None:
        """`every`: seconds between two savings."""
        self.path, self.every = path, every
        self._began = self._latest = time.monotonic()

    def peek(self) -> TrainingProgress:
        """What the saved state says of its progress; none where none can be read. :meth:`restore` says whether it is usable."""
        try:
            with safe_open(self.path, "pt") as file:
                return _progress(file.metadata() or {})
        except (SafetensorError, OSError, ValueError):
            return TrainingProgress()

    def restore(self, tensors: Mapping[str, Tensor]) -> TrainingProgress:
        """Copy the saved state into `tensors`; no step is done where nothing was saved.

        Raises RunFileError, with `tensors` as they were, where the
        file is not a state of theirs, or not as it was saved.
        """
        if not self.path.exists():
            return TrainingProgress()
        try:
            with safe_open(self.path, "pt") as file:
                saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it has no iterator
                metadata = file.metadata() or {}
                progress = _progress(metadata)
        except (SafetensorError, OSError, ValueError) as error:
            raise RunFileError(f"the checkpoint {self.path} cannot be read: {error}") from error
        if metadata[_CHECKSUM] != _checksum(progress, saved):
            raise RunFileError(f"the checkpoint {self.path} is damaged: its checksum is another one")
        kinds = [{name: (t.shape, t.dtype) for name, t in state.items()} for state in (saved, tensors)]
        if kinds[0] != kinds[1]:
            raise RunFileError(f"the checkpoint {self.path} is of other models")
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
        return progress

    def due(self, last: bool) -> bool:
        """Whether it is time to save. The last step is saved if an earlier one was, or if training took long."""
        now = time.monotonic()
        worth = last and (self.path.exists() or now - self._began >= WORTH_SECONDS)
        return worth or now - self._latest >= self.every

    def save(self, progress: TrainingProgress, tensors: Mapping[str, Tensor]) -> None:
        """Save the state of a training. A kill at any moment leaves the earlier state or this one, whole.

        Raises OSError, with the earlier state as it was, where the file cannot be written.
        """
        here = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        written = {name: str(value) for name, value in progress._asdict().items()}
        metadata = written | {"measured": json.dumps(progress.measured), _CHECKSUM: _checksum(progress, here)}
        try:
            with replaced(self.path) as partial:
                save_file(here, partial, metadata=metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        finally:
            self._latest = time.monotonic()  # after a failure too: a full disk is not tried again at every step


_CHECKSUM = "checksum"


def _checksum(progress: TrainingProgress, tensors: Mapping[str, Tensor]) -> str:
    """Of everything that is saved. A single bit that the disk flips would otherwise be resumed to other numbers in silence."""
    total = blake2b(f"{progress[:-1]} {json.dumps(progress.measured)}".encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _progress(metadata: Mapping[str, str]) -> TrainingProgress:
    """Raises ValueError where a value is missing, as in checkpoints of an older lgbench, or is of another kind."""
    missing = [name for name in (*TrainingProgress._fields, _CHECKSUM) if name not in metadata]
    if missing:
        raise ValueError(f"its metadata lack {' and '.join(missing)}")
    compiled = metadata["compiled"] == str(True)
    measured = json.loads(metadata["measured"])
    if not isinstance(measured, dict):
        raise ValueError("what was measured is no object")
    measured = {int(step): found for step, found in measured.items()}
    return TrainingProgress(int(metadata["step"]), int(metadata["models"]), compiled, float(metadata["seconds"]), measured)
