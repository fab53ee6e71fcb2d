"""The training stream: which contexts and targets a seed sees at which step, whoever trains beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench import seeds
from lgbench.contracts import Answers, Task
from lgbench.protocols import Training

CHUNK = 64
"""Steps drawn at once, so that a sampler's cost is shared. Part of what a seed means: changing it moves every number."""


class Step(NamedTuple):
    """inputs: (B, T) or (B, T, F). targets: (B, A) int64, drawn from p* independently of how the context goes on."""

    inputs: Tensor
    targets: Tensor


def draw_targets(distribution: Tensor, generator: torch.Generator) -> Tensor:
    """One token from each distribution: (..., V) -> (...). An exponential race, so p = 0 never wins."""
    race = torch.empty_like(distribution).exponential_(generator=generator)
    return (distribution / race).argmax(-1)


def training_lengths(task: Task, training: Training) -> list[int]:
    """The context length of every step, the same for all seeds, so that a population's batches have one shape."""
    low, high, steps = training.min_length, training.max_length, training.steps
    if task.signature.answers is Answers.EVERY_PREFIX:
        return [high] * steps
    drawn: list[int] = torch.randint(low, high + 1, (steps,), generator=seeds.generator(0, "training lengths")).tolist()
    return drawn


def stream(task: Task, training: Training, seed: int, device: torch.device) -> Iterator[Step]:
    """Every step's batch, in order."""
    lengths = training_lengths(task, training)
    for start in range(0, training.steps, CHUNK):
        chunk = lengths[start : start + CHUNK]
        generator = seeds.generator(seed, "train", task.name, start, device=device)
        drawn = {length: _draw(task, length, chunk.count(length), training.batch, generator) for length in sorted(set(chunk))}
        for length in chunk:
            yield next(drawn[length])


def _draw(task: Task, length: int, steps: int, batch: int, generator: torch.Generator) -> Iterator[Step]:
    inputs, distribution = task.sample(steps * batch, length, generator)
    targets = draw_targets(distribution, generator)
    return (Step(x, y) for x, y in zip(torch.split(inputs, batch), torch.split(targets, batch), strict=True))
