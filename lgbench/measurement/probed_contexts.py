"""The contexts that are probed, and at which positions their answers are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lgbench import seeds
from lgbench.contracts import Answers, Batch
from lgbench.experiment.contexts import draw
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.lengths import board_lengths, context_lengths
from lgbench.randomness import Random

CONTEXTS = 8
"""Contexts that are probed of each length, at most: a sixteenth of those that the standard protocol tests."""


def contexts_of(experiment: Experiment) -> Iterator[tuple[int, Batch]]:
    """The contexts that are probed, by their length."""
    task, evaluation = experiment.task, experiment.evaluate
    for length in context_lengths(task, experiment.train, evaluation):
        key = seeds.key(experiment.seed, "evaluate", task.name, "contexts", length)
        yield length, draw(task, length, Random.stacked([key], min(CONTEXTS, evaluation.contexts)))


def _places(experiment: Experiment, length: int, batch: Batch) -> dict[int, int]:
    """By length, how many positions before the last one the answer is that is probed."""
    task = experiment.task
    if task.signature.answers is Answers.LAST:
        return {length: 0}
    if task.signature.answers is Answers.EVERY_PREFIX:
        shown = board_lengths(task, experiment.train, experiment.evaluate)
        return {each: length - each for each in shown if 0 <= length - each < batch.distribution.shape[1]}
    assert batch.weights is not None
    from_end = (batch.weights.flip(1) > 0).float().argmax(1)
    return {length: int(from_end.mode().values)}  # the last position that counts, which most contexts have in one place


class Asked(NamedTuple):
    """Contexts that a model reads, and the answers that are probed."""

    places: dict[int, int]
    """By length, how many positions before the last one its answer is."""
    parts: list[Batch]
    """The contexts, as many together as a model reads at once."""
    sources: list[dict[int, Tensor | None]]
    """Of each part, `Task.sources` by place: the same for all variants."""
    counting: dict[int, Tensor]
    """By place, the contexts whose answer there counts."""

    @classmethod
    def of(cls, experiment: Experiment, length: int, batch: Batch, at_once: int, where: torch.device) -> Asked:
        """`at_once`: how many positions a model reads at most, unless one context has more. `where` sources are wanted."""
        places = _places(experiment, length, batch)
        positions = batch.inputs.shape[1]
        size = max(1, at_once // positions)
        parts = [
            Batch(*(None if each is None else each[start : start + size] for each in batch))  # type: ignore[arg-type]
            for start in range(0, len(batch.inputs), size)
        ]

        def sources_of(part: Batch, place: int) -> Tensor | None:
            sources = experiment.task.sources(part.inputs[:, : positions - place])
            return None if sources is None else sources.to(where)

        sources = [{place: sources_of(part, place) for place in places.values()} for part in parts]
        counting = {place: _counting(batch, place, where) for place in places.values()}
        return cls(places, parts, sources, counting)


def _counting(batch: Batch, place: int, where: torch.device) -> Tensor:
    """The contexts whose answer at a place counts."""
    counts = torch.ones(len(batch.inputs), dtype=torch.bool) if batch.weights is None else batch.weights[:, -1 - place] > 0
    return counts.nonzero().flatten().to(where)
