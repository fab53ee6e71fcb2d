"""The training stream: the contexts and targets of each step. A seed's do not depend on the models that are trained with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench import seeds
from lgbench.contracts import Answers, Task
from lgbench.experiment.contexts import draw
from lgbench.experiment.protocols import Training

CHUNK = 64
"""Steps drawn at once, so that a sampler's cost is shared. Part of what a seed means: changing it moves every number."""

DRAWN_AT_ONCE = {"cpu": 2**18, "cuda": 2**26}
"""Probabilities summed up at once, by device: few enough to stay in a CPU's cache. Changes no number."""


class Step(NamedTuple):
    """The batches of one step.

    inputs: (P, B, T) or (P, B, T, F). targets: (P, B, A) int64, drawn from p* independently of how the context goes on; or p*
    itself, (P, B, A, V), where `train.targets` is "exact". weights: (P, B, A), or None where all answers count alike.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the batch: two, or three with weights."""
        return tuple(tensor for tensor in self if tensor is not None)


def draw_targets(distribution: Tensor, generator: torch.Generator) -> Tensor:
    """One token from each distribution: (..., V) -> (...), where the cumulative distribution passes a uniform number.

    In float64, so that the sums are exact in whatever order a device adds, and p = 0 is never drawn.
    """
    flat = distribution.flatten(0, -2)
    level = torch.rand(len(flat), 1, dtype=torch.float64, generator=generator, device=flat.device)
    drawn = torch.empty_like(level, dtype=torch.int64)
    rows = max(1, DRAWN_AT_ONCE[flat.device.type] // flat.shape[-1])
    for p, u, token in zip(*(torch.split(t, rows) for t in (flat, level, drawn)), strict=True):
        cumulative = p.cumsum(-1, dtype=torch.float64)
        torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True, out=token)
    return drawn.view(distribution.shape[:-1])


def training_lengths(task: Task, training: Training) -> list[int]:
    """The context length of every step, the same for all seeds, so that a population's batches have one shape."""
    low, high, steps = training.min_length, training.max_length, training.steps
    if task.signature.answers is Answers.EVERY_PREFIX:
        return [high] * steps
    drawn: list[int] = torch.randint(low, high + 1, (steps,), generator=seeds.generator(0, "training lengths")).tolist()
    return drawn


def stream(members: Sequence[tuple[Task, int]], training: Training, device: torch.device, done: int = 0) -> Iterator[Step]:
    """The batches of a population, one (task, seed) a model, in order, from the one after `done` steps on.

    The tasks share a signature. Each chunk has a generator of its own, so continuing in the middle needs no other state.
    """
    lengths = training_lengths(members[0][0], training)
    for start in range(done - done % CHUNK, training.steps, CHUNK):
        chunk = lengths[start : start + CHUNK]
        generators = [seeds.generator(seed, "train", task.name, start, device=device) for task, seed in members]
        drawn = {
            length: _draw([task for task, _ in members], length, chunk.count(length), training, generators, start)
            for length in sorted(set(chunk))
        }
        for step, length in enumerate(chunk, start + 1):
            batch = next(drawn[length])
            if step > done:
                yield batch


def _draw(
    tasks: Sequence[Task], length: int, steps: int, training: Training, generators: Sequence[torch.Generator], start: int
) -> Iterator[Step]:
    """The next `steps` batches of one length, in the chunk that begins after `start` steps."""
    drawn: list[list[Tensor]] = []
    for task, generator in zip(tasks, generators, strict=True):
        # A check waits for a GPU, so there only the first chunk is checked.
        check = start == 0 or generator.device.type == "cpu"
        tensors = draw_batch(task, steps * training.batch, length, training.targets, generator, check)
        drawn.append([tensor.view(steps, training.batch, *tensor.shape[1:]) for tensor in tensors])
    weighted = any(len(batch) > 2 for batch in drawn)
    for batch in drawn:
        if weighted and len(batch) == 2:  # of this task all answers count alike
            batch.append(batch[0].new_ones(batch[1].shape[:3], dtype=torch.float32))
    return map(Step, *(torch.stack(column, 1) for column in zip(*drawn, strict=True)))


def draw_batch(
    task: Task, n: int, length: int, targets: str, generator: torch.Generator, check: bool = True
) -> tuple[Tensor, ...]:
    """The tensors of a :class:`Step` for one model: inputs, targets and, where the task gives some, weights."""
    inputs, distribution, weights = draw(task, n, length, generator, check)
    right = distribution if targets == "exact" else draw_targets(distribution, generator)
    return Step(inputs, right, weights).tensors
