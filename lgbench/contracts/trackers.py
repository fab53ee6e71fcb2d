"""Trackers: places where people follow and keep their trainings, such as Weights & Biases.

All methods are called from a thread of the process that trains. A slow call delays no training step. After an exception, or
60 s after the end of a population, the tracker is called no more, and training goes on. Trackers must leave torch alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Setting = str | int | float | bool | None


@dataclass(frozen=True)
class TrackedRun:
    """One run of lgbench: one model with one seed."""

    name: str
    """The name of its run file without the suffix."""
    tags: Mapping[str, str]
    """By "task", "family", "entry", "seed", "protocol" and "run_id"."""
    config: Mapping[str, Setting]
    """Settings that decide the numbers of the run, under names such as "train.lr" and "model.layers"."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    status: Literal["finished", "failed", "stopped"]
    """Stopped: by an interrupt, or since another command trains the run. A stopped run may be resumed."""
    reason: str = ""
    """Sentence for failed and stopped runs."""
    diverged_step: int | None = None
    """First step of a diverged training; None for other trainings."""


class OpenRun(ABC):
    """Open run of a tracker."""

    handle: str
    """Identifier of the run for :meth:`Tracker.resume` in another process. Kept beside the checkpoint."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep finite numbers of an optimizer step. Steps never fall; each number comes once.

        Names are "train_loss" and "gradient_norm", and "tvd/raw/64" for the TVD of the raw weights at length 64.
        """

    @abstractmethod
    def end(self, end: RunEnd) -> None:
        """Close the run after everything logged is stored."""


class Tracker(ABC):
    """A place where people keep their trainings. Import its library inside the methods, since every command loads plugins."""

    name: str
    """Lower-case letters, digits and hyphens."""
    about: str = ""
    """One sentence, if the class's docstring does not describe this object."""

    def missing(self) -> str | None:
        """Reason why the tracker cannot be used here, such as "foo is not installed: pip install foo"; None if usable."""
        return None

    @abstractmethod
    def start(self, run: TrackedRun) -> OpenRun:
        """Begin a run. Several runs are open at the same time. An exception is shown to the user, and training goes on."""

    def resume(self, run: TrackedRun, handle: str) -> OpenRun | None:
        """Open a run again, after its training was resumed. None if the tracker cannot; then :meth:`start` is called."""
        return None
