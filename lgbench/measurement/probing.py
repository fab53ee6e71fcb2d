"""Probing trained models: internals at each length of the boards, on the first test contexts.

Where a task answers at every prefix, one pass over the longest contexts serves all lengths, because models are causal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import isfinite
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lgbench.contracts import Answers, Batch, Internals, Measurement, Reading
from lgbench.errors import lacks_memory, message_of
from lgbench.experiment.contexts import board_lengths, context_lengths, draw
from lgbench.experiment.experiment import Experiment
from lgbench.internals.sight import TOLERANCES, Seen, Sight, joined, sight_of
from lgbench.measurement.causality import Predict
from lgbench.measurement.evaluate import AT_ONCE, DRAWN_POSITIONS
from lgbench.measurement.scores import Score, of_source, unwritten
from lgbench.randomness import Random, device_of_data, key_of

CONTEXTS = 64
"""Largest number of probed contexts of each length: half of the test contexts in the standard protocol."""


def contexts_of(experiment: Experiment) -> Iterator[tuple[int, Batch]]:
    """Probed contexts by length."""
    task, evaluation = experiment.task, experiment.evaluate
    for length in context_lengths(task, experiment.train, evaluation):
        key = key_of(experiment.seed, "evaluate", task.name, "contexts", length)
        yield length, draw(task, length, Random.stacked([key], min(CONTEXTS, evaluation.contexts)))


class _Asked(NamedTuple):
    """One probed answer of each of n contexts."""

    length: int
    place: int
    """Number of positions after the answer."""
    inputs: Tensor
    """Contexts up to the answer: (n, T), or (n, T, F)."""
    distribution: Tensor
    sources: Tensor | None
    counting: Tensor
    """Indices of contexts whose answer counts."""

    @classmethod
    def of(cls, experiment: Experiment, length: int, batch: Batch, where: torch.device) -> list[_Asked]:
        """Probed answers of contexts of `length`. `where`: device of the tensors."""
        found = []
        for answered, place in _places(experiment, length, batch).items():
            inputs = batch.inputs[:, : batch.inputs.shape[1] - place]
            sources = experiment.task.sources(inputs)
            counts = torch.ones(len(inputs)) if batch.weights is None else batch.weights[:, -1 - place]
            found.append(
                cls(
                    answered,
                    place,
                    inputs.to(where),
                    batch.distribution[:, -1 - place].to(where).double(),
                    None if sources is None else sources.to(where),
                    (counts > 0).nonzero().flatten().to(where),
                )
            )
        return found

    def internals(self, parts: Sequence[tuple[Tensor, Seen]]) -> Internals:
        """Internals of a model in the contexts whose answer counts, from logits and internals in consecutive parts of them."""
        inputs, distribution, sources = joined([(self.inputs, self.distribution, self.sources)], self.counting)
        logits, seen = joined(parts, self.counting)
        return Internals(self.length, inputs, logits, distribution, sources, *seen)


def _places(experiment: Experiment, length: int, batch: Batch) -> dict[int, int]:
    """Place of the probed answer by length: number of positions after the answer."""
    task = experiment.task
    if task.signature.answers is Answers.LAST:
        return {length: 0}
    if task.signature.answers is Answers.EVERY_PREFIX:
        shown = board_lengths(task, experiment.train, experiment.evaluate)
        return {each: length - each for each in shown if 0 <= length - each < batch.distribution.shape[1]}
    assert batch.weights is not None
    from_end = (batch.weights.flip(1) > 0).float().argmax(1)
    return {length: int(from_end.mode().values)}  # the most common place of the last counting answer


class Probed(NamedTuple):
    """Scores of probes on a model, and a sentence for each part of the model that no probe reads."""

    scores: list[Score]
    sentences: list[str]


ModelsOf = Callable[[nn.Module], Mapping[str, Predict]]
"""From a module to the trained model in every weight variant, computed by this module."""


class Unseen(Exception):
    """Failure to see inside a model. A run without internals is still a run."""


@contextmanager
def _seeing() -> Iterator[None]:
    """Context for copies of parts, hooks, and packs that see a library. Raises Unseen, except for a lack of memory."""
    try:
        yield
    except Exception as error:  # the code of a part, of a library or of a pack may raise anything
        if lacks_memory(error):
            raise
        raise Unseen(message_of(error)) from error


@torch.no_grad()
def probe(experiment: Experiment, models_of: ModelsOf, device: torch.device) -> Probed:
    """Scores of every probe of an experiment at the lengths of the boards, for each weight variant.

    Contexts are the first test contexts of :func:`lgbench.measurement.evaluate.evaluate`, the same for every entry. Not in
    inference mode: attention weights are gradients. For a model that cannot be seen inside, only probes of whole models apply,
    and a sentence says why.
    """
    probes = of_source("internals", experiment.task, experiment.measurements)
    if not probes:
        return Probed([], [])
    where, tolerance = device_of_data(device), TOLERANCES[experiment.record.precision]
    try:
        with _seeing():
            sight = sight_of(experiment.parts, lambda parts: replace(experiment, parts=parts).build(), where, tolerance)
        scores = _scores(experiment, probes, models_of, device, sight, _seeing)
        why = "the output of a query is not linear in the values; no probe reads them"
        undefined = f"{experiment.entry}: the weights of its attention are not defined, since {why}"
        return Probed(scores, [undefined] if sight.not_linear else [])
    except Unseen as error:
        blind = Sight(experiment.build(), where, tolerance)
        said = f"{experiment.entry}: nothing can be seen inside it, since looking failed with {error}"
        return Probed(_scores(experiment, probes, models_of, device, blind, nullcontext), [said])


def _scores(
    experiment: Experiment,
    probes: Sequence[Measurement],
    models_of: ModelsOf,
    device: torch.device,
    sight: Sight,
    seeing: Callable[[], AbstractContextManager[None]],
) -> list[Score]:
    """Scores of probes. `seeing`: context of whatever may fail where the model is seen inside."""
    scores: list[Score] = []
    sight.model.eval()
    with ExitStack() as watching:
        with seeing():
            watching.enter_context(sight.watching())
        variants = models_of(sight.model)
        for length, batch in contexts_of(experiment):
            asked = _Asked.of(experiment, length, batch, sight.where)
            for variant, predict in variants.items():
                for seen in _seen(asked, batch.inputs, predict, device, sight, seeing):
                    for each in probes:
                        scores += scores_of(variant, each, seen)
    return scores


def _seen(
    asked: Sequence[_Asked],
    inputs: Tensor,
    predict: Predict,
    device: torch.device,
    sight: Sight,
    seeing: Callable[[], AbstractContextManager[None]],
) -> Iterator[Internals]:
    """Internals of a model at each probed answer of contexts (n, T) or (n, T, F)."""
    found: dict[int, list[tuple[Tensor, Seen]]] = defaultdict(list)
    positions, places = inputs.shape[1], sorted(each.place for each in asked)
    # One forward pass for all places, or one for each, up to the place.
    passes = [(place, [place]) for place in places] if sight.last_alone else [(0, places)]
    at_once = AT_ONCE.get(device.type, DRAWN_POSITIONS)
    for part in torch.split(inputs, max(1, at_once // positions)):
        for cut, served in passes:
            sight.begin([place - cut for place in served])
            with seeing():
                logits = predict(part[:, : positions - cut].to(device)).to(sight.where).double()
            for place in served:
                found[place].append((logits[:, cut - 1 - place], sight.at(place - cut)))
    for each in asked:
        yield each.internals(found.pop(each.place))


def scores_of(variant: str, measurement: Measurement, seen: Internals) -> Iterator[Score]:
    """Score for each layer and head of a probe."""
    found: dict[tuple[int | None, int | None], list[Reading]] = defaultdict(list)
    with unwritten(measurement, seen):
        for reading in measurement.of_internals(seen):
            found[reading.layer, reading.head].append(reading)
    contexts = len(seen.logits)
    for (layer, head), readings in found.items():
        values = readings[0].value if len(readings) == 1 else torch.stack([reading.value for reading in readings]).mean(0)
        # Lists, for on few numbers each operation of torch takes longer than the numbers do.
        known = [value for value in values.double().flatten().tolist() if isfinite(value)]
        n = len(known) if values.ndim else contexts * len(known)
        yield Score(variant, measurement.name, seen.length, fmean(known) if known else None, n, layer, head)
