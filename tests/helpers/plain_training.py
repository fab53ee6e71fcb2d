"""Training of one model as a tutorial writes it, and the scores of a trained one."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from lgbench.measurement.evaluate import evaluate
from lgbench.randomness import seeded
from lgbench.training.data import stream

CPU = torch.device("cpu")


CHEAP = {"train.steps": 3, "train.batch": 4, "evaluate.contexts": 4, "evaluate.strings": 8, "evaluate.max_length": 48}


def initial(experiment):
    """A model as it is before its training."""
    with seeded(experiment.seed, "weights"):
        return experiment.build()


def plain_training(experiment, optimizer_of=torch.optim.AdamW):
    """Train one model as any PyTorch tutorial does: backward(), AdamW. Yields the model and the loss after each step.

    The loss is written out: -sum w p log q / sum w, with weights w, where p is a distribution or a token.
    """
    training = experiment.train
    model = initial(experiment)
    matrices, vectors = ([p for p in model.parameters() if (p.ndim >= 2) == wanted] for wanted in (True, False))
    optimizer = optimizer_of(
        [{"params": matrices, "weight_decay": training.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    )
    warmup = max(1, round(training.warmup * training.steps))
    knots, heights = [-1, warmup - 1, warmup, max(training.steps, warmup + 1)], [0.0, 1.0, 1.0, 0.0]
    members = [(experiment.task, experiment.seed)]
    for done, batch in enumerate(stream(members, training, CPU)):
        for group in optimizer.param_groups:
            group["lr"] = training.lr * np.interp(done, knots, heights)
        optimizer.zero_grad()
        right, log_q = batch.targets[0], model(batch.inputs[0]).log_softmax(-1)
        p = right if right.is_floating_point() else F.one_hot(right, log_q.shape[-1])
        weights = torch.ones(p.shape[:2]) if batch.weights is None else batch.weights[0]
        loss = -(weights[..., None] * (p * log_q).where(p > 0, 0)).sum() / weights.sum()
        loss.backward()
        optimizer.step()
        yield model, loss.item()


def scores(experiment, run, index):
    """Every score of one model of a trained population."""
    found = evaluate(experiment, run.models(index), CPU)
    return {(s.weights, s.metric, s.length, s.n): s.value for s in found}
