"""Bounds of memory and time, held against a stranger's settings before anything large is made."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lgbench.errors import first_line
from lgbench.experiment.experiment import Experiment
from lgbench.training import cost

MAX_MODELS = 64
"""Models that are trained together at most to verify one run, whatever its file says."""


@dataclass(frozen=True)
class Bounds:
    """How much a rerun may need."""

    memory: int
    """In bytes."""
    seconds: float
    """Of one population, training and testing."""
    device: torch.device

    @classmethod
    def here(cls, device: torch.device, seconds: float) -> Bounds:
        """The bounds for a device: the share of its free memory that a population may take, and `seconds`."""
        return cls(int(cost.SHARE_OF_MEMORY * cost.free_memory(device)), seconds, device)


@dataclass(frozen=True)
class Needs:
    """The least memory and time that one model needs."""

    memory: int
    seconds: float


def reason_against(experiment: Experiment, models: int, bounds: Bounds) -> str | None:
    """A sentence if so many models need more memory or time than the bounds allow; None if they do not."""
    try:
        each = needs(experiment, bounds.device)
    except Exception as error:  # a plugin's model may raise anything where tensors have no numbers
        why = f"{type(error).__name__}: {first_line(error)}"
        return (
            f"nobody can tell beforehand how much memory and time its settings need ({why}); --unbounded tries it all the same"
        )
    seconds = models * each.seconds
    if each.memory > bounds.memory:  # more models than fit are trained one part after the other
        return (
            f"its settings need at least {_gigabytes(each.memory)} of memory, and {_gigabytes(bounds.memory)} may be used; "
            "use a machine with more, or --unbounded"
        )
    if seconds > bounds.seconds:
        return (
            f"its settings need at least {seconds / 3600:.3g} hours for a population of {models}, and the limit is "
            f"{bounds.seconds / 3600:.3g}; --hours allows more"
        )
    return None


def needs(experiment: Experiment, device: torch.device) -> Needs:
    """Memory and training time of one model, from measured steps. Raises whatever the code of its plugins raises."""
    steps = experiment.train.steps
    return Needs(cost.step_cost(experiment, device).memory, steps * cost.step_seconds([experiment], device))


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.3g} GB"
