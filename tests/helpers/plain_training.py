"""Training of one model as a tutorial writes it, and the scores of a trained one."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch
import torch.nn.functional as F

from lgbench.measurement.evaluate import evaluate
from lgbench.randomness import seeded
from lgbench.training.checkpoint import Checkpoint
from lgbench.training.data import stream
from lgbench.training.train import train

CPU = torch.device("cpu")


CHEAP = {"train.steps": 3, "train.batch": 4, "evaluate.contexts": 4, "evaluate.strings": 8, "evaluate.max_length": 48}


def initial(experiment):
    """A model as it is before its training."""
    with seeded(experiment.seed, "weights"):
        return experiment.build()


def resumed_at(step, population, path):
    """A training that was interrupted after a step, and then went on from its checkpoint."""

    def stop(done, loss):
        if done == step:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        train(population, CPU, stop, checkpoint=Checkpoint(path, 0.0))
    resumed = train(population, CPU, checkpoint=Checkpoint(path, 0.0))
    assert resumed.resumed
    return resumed


def plain_training(experiment):
    """Train one model as any PyTorch tutorial does: backward(), AdamW. Yields the model and the loss after each step."""
    training = experiment.train
    model = initial(experiment)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": training.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    )
    warmup = max(1, round(training.warmup * training.steps))
    knots, heights = [-1, warmup - 1, warmup, max(training.steps, warmup + 1)], [0.0, 1.0, 1.0, 0.0]
    members = [(experiment.task, experiment.seed)]
    for done, ((inputs,), (targets,), _) in enumerate(stream(members, training, CPU)):
        for group in optimizer.param_groups:
            group["lr"] = training.lr * np.interp(done, knots, heights)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).transpose(1, 2), targets)
        loss.backward()
        optimizer.step()
        yield model, loss.item()


def scores(experiment, run, index):
    """Every score of one model of a trained population."""
    found = evaluate(experiment, run.models(index), CPU)
    return {(s.weights, s.metric, s.length, s.n): s.value for s in found}
