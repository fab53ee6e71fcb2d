"""Probing trained models: internals at each length of the boards, on the first test contexts.

Where a task answers at every prefix, one pass over the longest contexts serves all lengths, because models are causal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import isfinite
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lgbench import seeds
from lgbench.contracts import Answers, Batch, Insides, Measurement, Reading
from lgbench.errors import first_line
from lgbench.experiment.contexts import draw
from lgbench.experiment.experiment import Experiment
from lgbench.experiment.lengths import board_lengths, context_lengths
from lgbench.internals.attention import TOLERANCES
from lgbench.internals.attention_layers import Unreadable, reading_layers, sight_of
from lgbench.internals.parts import watched
from lgbench.internals.sight import Seen, Sight, joined
from lgbench.measurement.causality import Predict
from lgbench.measurement.evaluate import AT_ONCE, DRAWN_POSITIONS
from lgbench.measurement.extent import probes_of, unwritten
from lgbench.measurement.soundness import Score
from lgbench.randomness import Random, device_of_data

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


class Probed(NamedTuple):
    """The scores of probes on a model, and a sentence for each thing that they could not read."""

    scores: list[Score]
    sentences: list[str]


ModelsOf = Callable[[nn.Module], Mapping[str, Predict]]
"""From a module to the trained model, with each variant of its weights, that computes by this module."""


@torch.no_grad()
def probe(experiment: Experiment, models_of: ModelsOf, device: torch.device) -> Probed:
    """Every probe of an experiment at the lengths that boards show, for each weight variant.

    The contexts are the first of those that :func:`lgbench.measurement.evaluate.evaluate` tests, so every entry is probed on
    the same ones. Not in inference mode: weights of attention are gradients. A model of a library whose layers cannot be read
    has the probes of whole models, and a sentence that says why.
    """
    probes = probes_of(experiment.task, experiment.measurements)
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
    """Raises Unreadable where `libraries` are looked into and a layer cannot be read."""
    try:
        model = watched(experiment)
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
    why = f"{doing} failed with {type(error).__name__}: {first_line(error)}"
    return f"{experiment.entry}: nothing can be seen inside it, since {why}"


def _said(experiment: Experiment, sight: Sight) -> list[str]:
    if not sight.not_linear:
        return []
    why = "the output of a query is not linear in the values"
    return [f"{experiment.entry}: the weights of its attention are not defined, since {why}; no probe reads them"]


def _seen(asked: Asked, predict: Predict, device: torch.device, sight: Sight) -> Iterator[Insides]:
    """The insides of a model at each length for which these contexts have an answer."""
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
    """How many positions a reading of the contexts leaves off at the end, and the places by length that it serves."""
    if not last_alone:
        yield 0, places
        return
    for cut in sorted(set(places.values())):
        yield cut, {length: place for length, place in places.items() if place == cut}


def _at(length: int, place: int, part: Batch, sources: Tensor | None, logits: Tensor, seen: Seen) -> Insides:
    """Of one position, which has these logits, (n, V)."""
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
    """A score for each layer and head that the probe reads."""
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
