"""Probing trained models: internals at each length of the boards, on the first test contexts.

Where a task answers at every prefix, one pass over the longest contexts serves all lengths, because models are causal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lgbench.contracts import Answers, Batch, Insides, Measurement, Reading
from lgbench.errors import message_of
from lgbench.experiment.contexts import board_lengths, context_lengths, draw
from lgbench.experiment.experiment import Experiment
from lgbench.internals.attention import TOLERANCES
from lgbench.internals.layers import Unreadable, reading_layers, sight_of, watched
from lgbench.internals.sight import Seen, Sight, joined
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


class Asked(NamedTuple):
    """Contexts for a model, with the probed answers."""

    places: dict[int, int]
    """Place of the probed answer by length: number of positions after the answer."""
    parts: list[Batch]
    """Contexts, grouped for one forward pass each."""
    sources: list[dict[int, Tensor | None]]
    """`Task.sources` of each part, by place: the same for all variants."""
    counting: dict[int, Tensor]
    """Indices of contexts with a counting answer, by place."""

    @classmethod
    def of(cls, experiment: Experiment, length: int, batch: Batch, at_once: int, where: torch.device) -> Asked:
        """Contexts in parts of at most `at_once` positions, or of one context. `where`: device of the sources."""
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
    """Indices of contexts with a counting answer at a place."""
    counts = torch.ones(len(batch.inputs), dtype=torch.bool) if batch.weights is None else batch.weights[:, -1 - place] > 0
    return counts.nonzero().flatten().to(where)


class Probed(NamedTuple):
    """Scores of probes on a model, and a sentence for each unreadable part of the model."""

    scores: list[Score]
    sentences: list[str]


ModelsOf = Callable[[nn.Module], Mapping[str, Predict]]
"""From a module to the trained model in every weight variant, computed by this module."""


@torch.no_grad()
def probe(experiment: Experiment, models_of: ModelsOf, device: torch.device) -> Probed:
    """Scores of every probe of an experiment at the lengths of the boards, for each weight variant.

    Contexts are the first test contexts of :func:`lgbench.measurement.evaluate.evaluate`, the same for every entry. Not in
    inference mode: attention weights are gradients. For a library model with unreadable layers, only probes of whole models
    apply, and a sentence says why.
    """
    probes = of_source("insides", experiment.task, experiment.measurements)
    if not probes:
        return Probed([], [])
    try:
        return _probed(experiment, probes, models_of, device, libraries=True)
    except Unreadable as unreadable:
        found = _probed(experiment, probes, models_of, device, libraries=False)
        return Probed(found.scores, [_blind(experiment, "reading its layers", unreadable.error), *found.sentences])


def _probed(
    experiment: Experiment, probes: Sequence[Measurement], models_of: ModelsOf, device: torch.device, libraries: bool
) -> Probed:
    """Scores of probes. Raises Unreadable for an unreadable layer, if `libraries` are read."""
    try:
        model = watched(experiment.parts, lambda parts: replace(experiment, parts=parts).build())
    except Exception as error:  # the code of an architecture or a part may raise anything
        return Probed([], [_blind(experiment, "building it from copies of its parts", error)])
    model.model.eval()
    sight = sight_of(model, device_of_data(device), TOLERANCES[experiment.record.precision], libraries)
    scores: list[Score] = []
    with ExitStack() as looking:
        with reading_layers(sight):
            looking.enter_context(sight.watching())
        variants = models_of(model.model)
        for length, batch in contexts_of(experiment):
            asked = Asked.of(experiment, length, batch, AT_ONCE.get(device.type, DRAWN_POSITIONS), sight.where)
            for variant, predict in variants.items():
                for seen in _seen(asked, predict, device, sight):
                    for each in probes:
                        scores += scores_of(variant, each, seen)
    return Probed(scores, _said(experiment, sight))


def _blind(experiment: Experiment, doing: str, error: Exception) -> str:
    why = f"{doing} failed with {message_of(error)}"
    return f"{experiment.entry}: nothing can be seen inside it, since {why}"


def _said(experiment: Experiment, sight: Sight) -> list[str]:
    if not sight.not_linear:
        return []
    why = "the output of a query is not linear in the values"
    return [f"{experiment.entry}: the weights of its attention are not defined, since {why}; no probe reads them"]


def _seen(asked: Asked, predict: Predict, device: torch.device, sight: Sight) -> Iterator[Insides]:
    """Internals of a model at each length with an answer in the contexts."""
    found: dict[int, list[Insides]] = defaultdict(list)
    for part, sources in zip(asked.parts, asked.sources, strict=True):
        for cut, served in _readings(asked.places, sight.last_alone):
            sight.begin(sorted({place - cut for place in served.values()}))
            given = part.inputs[:, : part.inputs.shape[1] - cut]
            with reading_layers(sight):
                logits = predict(given.to(device)).to(sight.where).double()
            for length, place in served.items():
                answer, seen = logits[:, cut - 1 - place], sight.at(place - cut)
                found[length].append(_at(length, place, part, sources[place], answer, seen))
    for length, own in found.items():
        yield joined(own, asked.counting[asked.places[length]])


def _readings(places: Mapping[int, int], last_alone: bool) -> Iterator[tuple[int, Mapping[int, int]]]:
    """Forward passes: number of positions cut off at the end, and the answered places by length."""
    if not last_alone:
        yield 0, places
        return
    for cut in sorted(set(places.values())):
        yield cut, {length: place for length, place in places.items() if place == cut}


def _at(length: int, place: int, part: Batch, sources: Tensor | None, logits: Tensor, seen: Seen) -> Insides:
    """Internals at one position with logits (n, V)."""
    where = logits.device
    return Insides(
        length=length,
        inputs=part.inputs[:, : part.inputs.shape[1] - place].to(where),
        logits=logits,
        distribution=part.distribution[:, -1 - place].to(where).double(),
        sources=sources,
        attentions=seen.attentions,
        sublayers=seen.sublayers,
        final=seen.final,
    )


def scores_of(variant: str, measurement: Measurement, seen: Insides) -> Iterator[Score]:
    """Score for each layer and head of a probe."""
    found: dict[tuple[int | None, int | None], list[Reading]] = defaultdict(list)
    with unwritten(measurement, seen):
        for reading in measurement.of_insides(seen):
            found[reading.layer, reading.head].append(reading)
    contexts = len(seen.logits)
    for (layer, head), readings in found.items():
        values = readings[0].value if len(readings) == 1 else torch.stack([reading.value for reading in readings]).mean(0)
        # Lists, for on few numbers each operation of torch takes longer than the numbers do.
        known = [value for value in values.double().flatten().tolist() if isfinite(value)]
        n = len(known) if values.ndim else contexts * len(known)
        yield Score(variant, measurement.name, seen.length, fmean(known) if known else None, n, layer, head)
