"""Bounds of memory and time, held against a stranger's settings before anything large is made."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lgbench.errors import first_line
from lgbench.execution.memory import testing_memory, training_memory
from lgbench.execution.progress import evaluation_tokens, point_tokens, training_tokens
from lgbench.experiment.experiment import Experiment
from lgbench.training import cost, estimate

MAX_MODELS = 64
"""Models that are trained together at most to verify one run, whatever its file says."""
FLOPS_PER_SECOND = {"cpu": 1e12, "cuda": 1e14}
"""More than any machine of the kind reaches on such models, so that no run is refused which could be in time."""
SECONDS_PER_OPERATOR = 1e-6
"""Less than any operator takes."""


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
    """The least memory and time that one model of an experiment needs. Raises whatever the code of its plugins raises."""
    each = estimate.step_cost(experiment)
    steps = experiment.train.steps
    testing = evaluation_tokens(experiment) + point_tokens(experiment)
    tested = steps * testing / training_tokens(experiment)  # the steps that would cost as much
    return Needs(
        memory=max(training_memory(experiment, each), testing_memory(experiment)),
        seconds=steps * _seconds(each, device) + tested * each.flops / _rate(device),
    )


def _seconds(step: cost.Cost, device: torch.device) -> float:
    return max(step.flops / _rate(device), step.operators * SECONDS_PER_OPERATOR)


def _rate(device: torch.device) -> float:
    return FLOPS_PER_SECOND.get(device.type, FLOPS_PER_SECOND["cuda"])


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.3g} GB"
