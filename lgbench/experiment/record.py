"""The record of an experiment: names and numbers alone, as a run file's footer holds them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lgbench.experiment.protocols import Evaluation, Training


@dataclass(frozen=True)
class ProtocolUse:
    """A protocol, and what `--set` changed of it."""

    name: str
    version: int
    changes: tuple[tuple[str, str], ...] = ()
    """By setting, such as ("train.lr", "0.001"), in the order of the settings' names."""

    def __str__(self) -> str:
        """For titles, such as "standard/3 train.lr=0.001"."""
        return " ".join([f"{self.name}/{self.version}", *(f"{key}={value}" for key, value in self.changes)])


@dataclass(frozen=True)
class ExperimentRecord:
    """One model on one task with one seed, and everything that decides its numbers. Names are those that results show."""

    task: str
    family: str
    task_version: int
    entry: str
    """The architecture and its parts, as boards name them."""
    architecture: str
    norm: str | None
    """None where the architecture takes no such part. So too for attention and position."""
    attention: str | None
    position: str | None
    optimizer: str
    options: tuple[tuple[str, Any], ...]
    """Every option of the architecture, its parts and the optimizer, such as ("model.layers", 2)."""
    averagers: tuple[str, ...]
    protocol: ProtocolUse
    train: Training
    evaluate: Evaluation
    seed: int

    @cached_property
    def run_id(self) -> str:
        """16 hexadecimal digits that change with any field."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """For messages: entry, task and seed."""
        return f"{self.entry} on {self.task} seed {self.seed}"
