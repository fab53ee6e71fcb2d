"""Training data: contexts and targets of each step. The data of a seed do not depend on other models of the population."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench.contracts import Answers, Task, Vectors
from lgbench.experiment.contexts import draw
from lgbench.experiment.record import Training
from lgbench.randomness import Random, device_of_data, key_of

CHUNK = 64
"""Largest number of steps drawn at once: one call of a sampler serves them all. Changes no number."""

DRAWN_NUMBERS = {"cpu": 2**22, "cuda": 2**27}
"""Largest count of numbers in inputs and p* drawn at once, by device, for each task.

Bounds memory. At least one step is drawn. Changes no number.
"""


class Step(NamedTuple):
    """Batches of one step.

    inputs: (P, B, T) or (P, B, T, F). targets: (P, B, A) int64, drawn from p* independently of the rest of the context; or p*
    itself, (P, B, A, V), where `train.targets` is "exact". weights: (P, B, A), or None for equal weights.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors of the batch: two, or three with weights."""
        return tuple(tensor for tensor in self if tensor is not None)


def training_lengths(task: Task, training: Training) -> list[int]:
    """Context length of every step. All seeds share it, and so the batches of a population have one shape."""
    return _lengths(task, training, 0, training.steps)


def batch_shapes(task: Task, training: Training) -> int:
    """Number of batch shapes of a training: one for each context length."""
    return len(set(training_lengths(task, training)))


def _lengths(task: Task, training: Training, start: int, stop: int) -> list[int]:
    low, high = training.min_length, training.max_length
    if task.signature.answers is Answers.EVERY_PREFIX:
        return [high] * (stop - start)
    # One length a step for all seeds: a batch of the population then has one shape, without padding.
    random = Random.stacked([key_of(0, "training lengths")], stop - start, first=start)
    drawn: list[int] = (low + random.integers(high + 1 - low)).tolist()
    return drawn


def stream(members: Sequence[tuple[Task, int]], training: Training, device: torch.device, done: int = 0) -> Iterator[Step]:
    """Batches of a population in order, from step `done` + 1 on. `members`: one (task, seed) for each model.

    The tasks share a signature. A batch depends on seed, task and step alone: continuing in the middle needs no state.
    """
    for start in range(done, training.steps, CHUNK):
        stop = min(start + CHUNK, training.steps)
        lengths = _lengths(members[0][0], training, start, stop)
        # A check waits for a GPU, so there only the first chunk is checked.
        check = start == done or device.type == "cpu"
        steps: dict[int, list[int]] = {}
        for step, length in enumerate(lengths, start):
            steps.setdefault(length, []).append(step)
        drawn = {length: _batches(members, length, own, training, device, check) for length, own in steps.items()}
        for length in lengths:
            yield next(drawn[length])


def _batches(
    members: Sequence[tuple[Task, int]],
    length: int,
    steps: Sequence[int],
    training: Training,
    device: torch.device,
    check: bool,
) -> Iterator[Step]:
    """Batches of the given steps, all of one length. Each task draws the batches of all its models in one call."""
    models: dict[int, list[int]] = {}
    for model, (task, _) in enumerate(members):
        models.setdefault(id(task), []).append(model)  # a plugin's task may have no hash
    contexts = training.batch * max(map(len, models.values()))
    bound = DRAWN_NUMBERS.get(device.type, DRAWN_NUMBERS["cpu"])
    at_once = max(1, bound // (contexts * _numbers(members[0][0], length)))
    for part in (steps[first : first + at_once] for first in range(0, len(steps), at_once)):
        drawn = [
            draw_batch(members[own[0]][0], [members[model][1] for model in own], length, part, training, device, check)
            for own in models.values()
        ]
        yield from map(Step, *drawn[0]) if len(drawn) == 1 else _joined(list(models.values()), drawn)


def _numbers(task: Task, length: int) -> int:
    """Approximate count of numbers in a context and its p*."""
    inputs, classes, answers = task.signature.inputs, task.signature.classes, task.signature.answers
    width = inputs.width if isinstance(inputs, Vectors) else 2  # a token has the size of two float32
    return (length + 1) * (width + (0 if answers is Answers.LAST else classes))


def _joined(models: Sequence[Sequence[int]], drawn: Sequence[tuple[Tensor, ...]]) -> Iterator[Step]:
    """Steps of all models, from the tensors of each task, (steps, models of the task, B, ...)."""
    weighted = any(len(tensors) > 2 for tensors in drawn)
    columns: dict[int, list[Tensor]] = {}
    for own, tensors in zip(models, drawn, strict=True):
        if weighted and len(tensors) == 2:  # of this task all answers count alike
            tensors = (*tensors, tensors[0].new_ones(tensors[1].shape[:4], dtype=torch.float32))
        columns |= {model: [tensor[:, place] for tensor in tensors] for place, model in enumerate(own)}
    in_order = [columns[model] for model in sorted(columns)]
    return map(Step, *(torch.stack(column, 1) for column in zip(*in_order, strict=True)))


def draw_batch(
    task: Task,
    numbers: Sequence[int],
    length: int,
    steps: Sequence[int],
    training: Training,
    device: torch.device,
    check: bool = True,
) -> tuple[Tensor, ...]:
    """Tensors of a :class:`Step`, (steps, models, B, ...): inputs, targets and, for tasks with weights, weights.

    `numbers`: the seeds of the models. `steps` count from 0.
    """

    def random(purpose: str) -> Random:
        keys = [key_of(seed, purpose, task.name) for seed in numbers]
        return Random.stacked(keys, training.batch, steps, device=device_of_data(device))

    inputs, distribution, weights = draw(task, length, random("train"), check)
    right = distribution if training.targets == "exact" else random("targets").categorical(distribution)
    tensors = Step(inputs, right, weights).tensors
    shape = len(steps), len(numbers), training.batch
    return tuple(tensor.reshape(*shape, *tensor.shape[1:]).contiguous().to(device) for tensor in tensors)
