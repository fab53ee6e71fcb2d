"""Context-free baseline of a task: score of the best prediction without the context, at each length of the boards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lgbench.contracts import Answers, Measurement, Task
from lgbench.experiment.contexts import board_lengths, context_lengths, draw, point_lengths
from lgbench.experiment.protocols import Evaluation, Training
from lgbench.measurement.scores import Score, of_source, unwritten
from lgbench.randomness import Random, key_of

CHANCE = "chance"
"""Variant name of the context-free baseline in the rows of a run. Published as "chance"."""

MIN_CONTEXTS, MAX_CONTEXTS = 128, 1024
SAMPLED_POSITIONS = 2**19
"""Positions of a sample. The number of contexts follows, within the bounds above.

A submission holds baselines from these numbers, and `lgbench submit` computes them again: a change makes all published runs
invalid.
"""


@torch.no_grad()
def chance(task: Task, measurements: Sequence[Measurement], training: Training, evaluation: Evaluation) -> list[Score]:
    """Context-free baseline in each measurement with a baseline, at each length of the boards and of `evaluate.points`.

    Two-fold: a prediction fitted to one half of a sample of p* is scored on the other half. The sample depends on task and
    length alone.
    """
    on_contexts = of_source("contexts", task, measurements)
    scores = []
    for length, answers in _samples(task, training, evaluation):
        half = len(answers) // 2
        first, second = answers[:half], answers[half:]
        for measurement in on_contexts if half else ():
            with unwritten(measurement, (first, second)):
                values = [measurement.chance(*pair) for pair in ((first, second), (second, first))]
            known = [each for each in values if each is not None]
            if len(known) == 2:
                both = torch.cat(known)
                scores.append(Score(CHANCE, measurement.name, length, both.mean().item(), len(both)))
    return scores


def _samples(task: Task, training: Training, evaluation: Evaluation) -> Iterator[tuple[int, Tensor]]:
    """p* of independent answers by length, (answers, V)."""
    points = point_lengths(task, training, evaluation) if evaluation.points else []
    lengths = sorted({*board_lengths(task, training, evaluation), *points})
    for drawn in context_lengths(task, training, evaluation):
        n = min(MAX_CONTEXTS, max(MIN_CONTEXTS, SAMPLED_POSITIONS // (drawn + 1)))
        distribution, weights = _drawn(task, n, drawn)
        if task.signature.answers is not Answers.EVERY_PREFIX:
            yield drawn, distribution[weights > 0]
            continue
        for length in lengths:
            position = distribution.shape[1] - 1 - (drawn - length)
            if position >= 0:  # no answer may be due so early
                yield length, distribution[:, position][weights[:, position] > 0]


def _drawn(task: Task, n: int, length: int) -> tuple[Tensor, Tensor]:
    """p* of n contexts, (n, A, V), and the weight of each answer, (n, A). Draws few contexts at once to bound memory."""
    key = key_of(0, "chance", task.name, length)
    size = max(1, SAMPLED_POSITIONS // (length + 1))
    found, counted = [], []
    for start in range(0, n, size):
        batch = draw(task, length, Random.stacked([key], min(size, n - start), first=start))
        found.append(batch.distribution)
        counted.append(torch.ones(batch.distribution.shape[:2]) if batch.weights is None else batch.weights)
    return torch.cat(found), torch.cat(counted)
