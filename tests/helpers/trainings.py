"""Trainings that are interrupted and compared to the bit."""

from __future__ import annotations

import pytest

from lgbench.training.checkpoint import Checkpoint
from lgbench.training.train import train


def bits(tensors) -> dict[str, bytes]:
    """The bytes of the tensors, so that nan equals nan and 0 is not -0."""
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in tensors.items()}


def numbers(trained) -> dict[str, object]:
    """Everything that training yields, to the bit."""
    weights = {f"{variant}/{name}": w for variant, named in trained.weights.items() for name, w in named.items()}
    curve = {"loss": trained.curve.loss, "gradient_norm": trained.curve.gradient_norm}
    return bits(weights | curve | trained.buffers) | {"steps": trained.curve.steps, "diverged": trained.diverged}


def stopping_after(step: int):
    """A report that stops training as Ctrl-C does, `step` steps done."""

    def report(done, loss):
        if done == step:
            raise KeyboardInterrupt

    return report


def resumed_at(step: int, experiments, path, device, **options):
    """A training that was interrupted after a step, and then went on from its checkpoint."""
    with pytest.raises(KeyboardInterrupt):
        train(experiments, device, stopping_after(step), checkpoint=Checkpoint(path, 0), **options)
    resumed = train(experiments, device, checkpoint=Checkpoint(path, 0), **options)
    assert resumed.resumed
    return resumed
