"""Trackers: places where people follow and keep their trainings, such as Weights & Biases.

lgbench tells a tracker of runs from a process of its own. So a tracker may take its time, print, change what that process
shares, and fail: no training waits for it, and no number depends on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Setting = str | int | float | bool | None


@dataclass(frozen=True)
class TrackedRun:
    """A run of lgbench, which is one model, as a tracker gets to know it."""

    name: str
    """The name of its run file without the suffix."""
    tags: Mapping[str, str]
    """By "task", "family", "entry", "seed", "protocol" and "run_id"."""
    config: Mapping[str, Setting]
    """All that decides its numbers, under names such as "train.lr" and "model.layers"."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    status: Literal["finished", "failed", "stopped"]
    """Stopped: by an interrupt, or since another command has the run. It may go on."""
    reason: str = ""
    """A sentence, where it failed or was stopped."""
    diverged_step: int | None = None
    """The step at which the training diverged; None if it did not, or has not ended."""


class OpenRun(ABC):
    """A run that a tracker has begun."""

    handle: str
    """By this the tracker finds its run again, in another process. lgbench keeps it beside the checkpoint."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep finite numbers that belong to an optimizer step. Steps never fall; no number comes twice.

        Names are "train_loss" and "gradient_norm", and "tvd/raw/64" for the TVD of the raw weights at length 64.
        """

    @abstractmethod
    def end(self, end: RunEnd) -> None:
        """Close the run, with all that was logged safely kept."""


class Tracker(ABC):
    """A place where people keep their trainings. Import its library inside the methods, for every command loads plugins."""

    name: str
    """Lower-case letters, digits and hyphens."""
    about: str = ""
    """One sentence, where the class's docstring does not describe this object."""

    def missing(self) -> str | None:
        """Why it cannot be used here, such as "foo is not installed: pip install foo"; None where it can."""
        return None

    @abstractmethod
    def start(self, run: TrackedRun) -> OpenRun:
        """Begin a run. Several are open at the same time. Any error is told to the user, who keeps the training."""

    def resume(self, run: TrackedRun, handle: str) -> OpenRun | None:
        """Go on with a run whose training goes on. None where the tracker cannot; then a new run is started."""
        return None
