"""More toys, things with one thing changed, and registries and experiments of things that a test makes."""

from __future__ import annotations

from types import ModuleType

import torch
import toys

import lgbench_measurements
import lgbench_optimizers
from helpers.registries import with_essentials
from lgbench import Answers, Batch, Signature, Tokens, hookimpl
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.record import Evaluation, ExperimentRecord, ProtocolUse, Training
from lgbench.extensions.loading import Distribution
from lgbench.extensions.registry import Registry

HERE = Distribution("own", "1")


def but(thing, **changes):
    """The thing with other attributes and methods than its own."""
    return type("Changed", (type(thing),), {"__doc__": type(thing).__doc__, **changes})()


def toys_and(origin: Distribution = HERE, **things: object) -> Registry:
    """A registry of the essentials, the toys, and things by kind: `norm=MyNorm()`, or a list. These come from `origin`."""
    registry = with_essentials()
    registry.add(toys, "toys", Distribution("lgbench-toys", "1.2.3"))
    module = ModuleType("own")
    for kind, thing in things.items():
        setattr(
            module,
            f"lgbench_{kind}s",
            hookimpl(specname=f"lgbench_{kind}s")(lambda thing=thing: thing if isinstance(thing, list) else [thing]),
        )
    error = registry.add(module, "own", origin).error if things else None
    assert not error, error
    return registry


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
