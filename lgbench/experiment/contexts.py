"""Drawing contexts from a task, and holding the task to its own p*."""

from __future__ import annotations

from torch import Tensor, finfo

from lgbench.contracts import Answers, Batch, Task, Tokens
from lgbench.errors import PluginError
from lgbench.randomness import Random

TOLERANCE = 1e-3
"""How far from 1 a float32 p* may sum."""


def draw(task: Task, length: int, random: Random, check: bool = True) -> Batch:
    """`random.n` contexts of a task. Checks them, which waits for the device, unless `check` is False.

    Raises PluginError with what is wrong with the task's batch.
    """
    batch = task.sample(length, random)
    if check and (sentence := problem(task, batch, random.n)):
        raise PluginError(f"task {task.name} at length {length}: {sentence}")
    return batch


def problem(task: Task, batch: Batch, n: int) -> str | None:
    """The first thing that is wrong with a batch of n contexts; None if it is right."""
    if not isinstance(batch, Batch):
        return f"`sample` gives {type(batch).__name__}, expected lgbench.Batch: return Batch(inputs, distribution)"
    inputs, p, weights = batch.inputs, batch.distribution, batch.weights
    signature = task.signature
    answers = 1 if signature.answers is Answers.LAST else inputs.shape[1]
    for name, tensor in (("p*", p), ("the tensor of weights", weights)):
        if tensor is not None and not tensor.is_floating_point():
            return f"{name} has the type {tensor.dtype}, expected float32"
    if p.shape[:1] + p.shape[2:] != (n, signature.classes) or p.ndim != 3:
        return f"p* has the shape {tuple(p.shape)}, expected ({n}, {answers}, {signature.classes}) for n, answers, classes"
    if p.shape[1] != answers:
        return f"p* has {p.shape[1]} answers to a context, expected {answers}: it answers {signature.answers.value}"
    if isinstance(signature.inputs, Tokens) and not _within(inputs, 0, signature.inputs.size - 1):
        return f"its inputs are not all from 0 to {signature.inputs.size - 1}, as its signature says"
    sums = p.sum(-1)
    if not (_within(p, -TOLERANCE, 1 + TOLERANCE) and _within(sums, 1 - TOLERANCE, 1 + TOLERANCE)):
        worst = sums.flatten()[(sums - 1).abs().argmax()].item()
        values = f"values from {p.min().item():.4g} to {p.max().item():.4g}"
        return f"p* is no probability distribution: it has {values} and a sum of {worst:.4g}, expected 0 to 1 and a sum of 1"
    if weights is not None and weights.shape != p.shape[:2]:
        return f"its weights have the shape {tuple(weights.shape)}, expected {tuple(p.shape[:2])} for n, answers"
    if weights is not None and not _within(weights, 0, finfo(weights.dtype).max):
        values = f"values from {weights.min().item():.4g} to {weights.max().item():.4g}"
        return f"its weights have {values}, expected finite numbers, none below 0"
    if weights is None and signature.answers is Answers.MARKED:
        return "it answers at marked positions and gives no weights: return Batch(inputs, distribution, weights)"
    return None


def _within(values: Tensor, low: float, high: float) -> bool:
    """NaN is not within anything."""
    return bool(((values >= low) & (values <= high)).all())
