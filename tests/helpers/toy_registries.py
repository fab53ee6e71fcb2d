"""More toys, things with one thing changed, and registries and experiments of things that a test makes."""

from __future__ import annotations

import torch
import toys

import lgbench_measurements
import lgbench_optimizers
from helpers.registries import toys_and
from lgbench import Answers, Batch, Signature, Tokens
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import Evaluation, ExperimentRecord, ProtocolUse, Training

__all__ = ["METRICS", "Marked", "Weighted", "but", "experiment_of", "settings", "toys_and"]


def but(thing, **changes):
    """The thing with other attributes and methods than its own."""
    return type("Changed", (type(thing),), {"__doc__": type(thing).__doc__, **changes})()


class Weighted(toys.Walk):
    """A walk in which every second position counts, each for one more than the one before, and the others for nothing."""

    name = family = "toy-weighted"

    def sample(self, length, random):
        inputs, distribution, _ = super().sample(length, random)
        weights = torch.arange(1.0, length + 1) * (torch.arange(length) % 2)
        return Batch(inputs, distribution, weights.repeat(random.n, 1))


class Marked(Weighted):
    """The same, where the positions that count answer for the whole length."""

    name = family = "toy-marked"
    signature = Signature(Tokens(3), 3, Answers.MARKED)
    train_lengths = (2, 6)


METRICS = tuple(lgbench_measurements.lgbench_measurements())


def settings(low: int, high: int, longest: int, contexts: int = 4, strings: int = 4, steps: int = 1, **points: int):
    """A training on lengths from `low` to `high`, and a test of this many contexts and strings to the longest."""
    return Training(steps, 1, 0.1, 0.0, 0.1, 1, low, high), Evaluation(contexts, strings, longest, **points)


def experiment_of(task, train: Training, evaluate: Evaluation, seed: int = 0, measurements=METRICS) -> Experiment:
    """An experiment with all that evaluation asks of it: a task, settings and a seed. It has no model."""
    record = ExperimentRecord(
        task=task.name,
        family=task.family,
        task_version=task.version,
        entry="toy",
        architecture="toy",
        norm=None,
        attention=None,
        position=None,
        optimizer="adamw",
        options=(),
        averagers=(),
        protocol=ProtocolUse("quick", 1),
        train=train,
        evaluate=evaluate,
        plugins=(),
        seed=seed,
    )
    return Experiment(record, task, tuple(measurements), toys.TableArchitecture(), {}, lgbench_optimizers.AdamW(), {}, {}, {})
