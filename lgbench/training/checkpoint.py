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
    """Progress of a training, for checkpoint and run files."""

    step: int = 0
    compiled: bool = False
    """Whether the steps were compiled."""
    seconds: float = 0.0
    """Seconds of the steps in all processes of the training."""
    measured: Mapping[int, Any] = {}
    """Measurements at eval steps, as JSON values by step."""


WORTH_SECONDS = 10.0
"""Seconds of a training worth a checkpoint at its end: later work may fail, such as writing the run files."""


class Checkpoint:
    """Latest saved state of one population. The data have no state: they follow from the step."""

    def __init__(self, path: Path, every: float) -> None:
        """`every`: seconds between two checkpoints."""
        self.path, self.every = path, every
        self._began = self._latest = time.monotonic()

    def restore(self, tensors: Mapping[str, Tensor]) -> TrainingProgress:
        """Copy the saved state into `tensors` and return its progress; step 0 where no state was saved.

        Raises RunFileError for a damaged file or the state of other models. `tensors` then stay unchanged.
        """
        if not self.path.exists():
            return TrainingProgress()
        try:
            with safe_open(self.path, "pt") as file:
                saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it has no iterator
                metadata = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise RunFileError(f"the checkpoint {self.path} cannot be read: {error}") from error
        text = metadata.get("progress", "")
        if metadata.get("checksum") != _checksum(text, saved):
            raise RunFileError(f"the checkpoint {self.path} is damaged, or of another version of lgbench")
        kinds = [{name: (t.shape, t.dtype) for name, t in state.items()} for state in (saved, tensors)]
        if kinds[0] != kinds[1]:
            raise RunFileError(f"the checkpoint {self.path} is of other models")
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
        progress = TrainingProgress(**json.loads(text))
        return progress._replace(measured={int(step): found for step, found in progress.measured.items()})

    def due(self, last: bool) -> bool:
        """Whether to save now. The last step is saved after an earlier checkpoint or a long training."""
        now = time.monotonic()
        worth = last and (self.path.exists() or now - self._began >= WORTH_SECONDS)
        return worth or now - self._latest >= self.every

    def save(self, progress: TrainingProgress, tensors: Mapping[str, Tensor]) -> None:
        """Save the state of a training. After a kill at any moment the file is whole, with the earlier or the new state.

        Raises OSError for a file that cannot be written. The earlier state then stays.
        """
        here = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}  # safetensors refuses other layouts
        text = json.dumps(progress._asdict())
        metadata = {"progress": text, "checksum": _checksum(text, here)}
        try:
            with replaced(self.path) as partial:
                save_file(here, partial, metadata=metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        finally:
            self._latest = time.monotonic()  # after a failure too: a full disk is not tried again at every step


def _checksum(progress: str, tensors: Mapping[str, Tensor]) -> str:
    """Checksum of the whole saved state. Without it, training would continue silently from a flipped bit to other numbers."""
    total = blake2b(progress.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
