"""Scores of trained models at every length, and the context-free baseline of a task. All variants read the same contexts.

Shapes: n contexts, T positions, A answers for each context, V classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lgbench.contracts import (
    CONTEXT_FREE,
    NOT_CAUSAL,
    NOT_FINITE,
    Answers,
    Batch,
    Language,
    Measurement,
    Predictions,
    StringScores,
    Task,
)
from lgbench.errors import PluginError, lacks_memory
from lgbench.experiment.contexts import (
    answered_lengths,
    board_lengths,
    context_lengths,
    draw,
    eval_step_lengths,
)
from lgbench.experiment.experiment import Tested
from lgbench.experiment.record import Evaluation, Training
from lgbench.measurement import causality
from lgbench.measurement.causality import Predict
from lgbench.measurement.scores import Score, of_source, unwritten
from lgbench.randomness import Random, device_of_data, key_of

DRAWN_POSITIONS = 2**18
"""Positions drawn at once, a bound on memory; at least one context is drawn. Changes no number."""

AT_ONCE = {"cpu": 2**15, "cuda": DRAWN_POSITIONS}
"""Positions in one forward pass, by device.

Larger activations outgrow caches and allocator of a CPU: with 2^18 retrieval at 2^14 took twice as long, most of the time in
the system.
"""


class Extent(NamedTuple):
    """Amount of one test."""

    contexts: int
    strings: int
    drawn: Sequence[int]
    """Lengths of the contexts."""
    kept: Container[int] | None
    """Lengths with kept scores, None for all. One context has scores of many lengths where every prefix has an answer."""
    of_strings: Sequence[int]
    """Lengths of the strings."""

    @classmethod
    def of_end(cls, task: Task, training: Training, evaluation: Evaluation) -> Extent:
        """Extent after training: everything."""
        strings = _string_lengths(task, board_lengths(task, training, evaluation))
        return cls(evaluation.contexts, evaluation.strings, context_lengths(task, training, evaluation), None, strings)

    @classmethod
    def of_eval_step(cls, task: Task, training: Training, evaluation: Evaluation) -> Extent:
        """Extent at eval steps: fewer contexts, and a subset of the final lengths."""
        kept = eval_step_lengths(task, training, evaluation)
        shown = set(board_lengths(task, training, evaluation))
        strings = _string_lengths(task, [length for length in kept if length in shown]) if evaluation.point_strings else []
        drawn = kept[-1:] if task.signature.answers is Answers.EVERY_PREFIX else kept
        return cls(evaluation.point_contexts, evaluation.point_strings, drawn, kept, strings)


def _string_lengths(task: Task, lengths: Iterable[int]) -> list[int]:
    """Lengths of the strings of a language; empty for other tasks."""
    return sorted({task.testable_length(length) for length in lengths}) if isinstance(task, Language) else []


class FiniteAnswers:
    """Counter of answers with finite logits, by weight variant and length. Only :meth:`scores` waits for the device."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[Tensor]] = defaultdict(list)

    def add(self, weights: str, length: int, finite: Tensor, counts: Tensor | None = None) -> None:
        """Add answers of one length: finiteness, (n, A), and weight of each answer, (n, A), or None for equal weights."""
        counted = torch.ones_like(finite) if counts is None else counts.to(finite.device) > 0
        self._counts[weights, length].append(torch.stack([(~finite & counted).sum(), counted.sum()]))

    def scores(self) -> Iterator[Score]:
        """Share of answers that are not finite, in the order of their first addition; None without any counting answer."""
        for (weights, length), counts in self._counts.items():
            wrong, answers = torch.stack(counts).sum(0).tolist()
            yield Score(weights, NOT_FINITE, length, wrong / answers if answers else None, answers)


@torch.no_grad()
def evaluate(experiment: Tested, models: Mapping[str, Predict], device: torch.device) -> list[Score]:
    """Every measurement at every length for each weight variant in `models`, and the validity of the answers.

    Contexts derive from (seed, task, length) alone: every entry on every device reads the same contexts. Not in inference mode:
    tensors of inference mode do not count writes by measurements.
    """
    test = _Test(experiment, models, device)
    scores = test.scores(Extent.of_end(experiment.task, experiment.train, experiment.evaluate))
    return [*scores, *test.finite.scores(), *test.causality_scores()]


@torch.no_grad()
def evaluate_at_eval_step(experiment: Tested, models: Mapping[str, Predict], device: torch.device) -> list[Score]:
    """Scores of models at an eval step: fewer lengths and contexts than :func:`evaluate`, without validity.

    Not in inference mode: autograd refuses tensors made in inference mode, and a model may keep a tensor from here.
    """
    extent = Extent.of_eval_step(experiment.task, experiment.train, experiment.evaluate)
    return _Test(experiment, models, device).scores(extent)


class _Test:
    """Test of the weight variants of one model."""

    def __init__(self, experiment: Tested, models: Mapping[str, Predict], device: torch.device) -> None:
        self.experiment = experiment
        self.device = device_of_data(device)  # scores need float64
        self.models = models
        if self.device != device:
            self.models = {variant: _answering(predict, device) for variant, predict in models.items()}
        self.finite, self.in_parts = FiniteAnswers(), InParts(self.device)

    def scores(self, extent: Extent) -> list[Score]:
        """Every measurement within an extent."""
        task, seed = self.experiment.task, self.experiment.seed
        on_strings = of_source("strings", task, self.experiment.measurements)
        scores: list[Score] = []
        for length in extent.drawn:
            key = key_of(seed, "evaluate", task.name, "contexts", length)
            found = self._of_contexts(length, _contexts(task, length, extent.contexts, key, DRAWN_POSITIONS, self.device))
            scores += (score for score in found if extent.kept is None or score.length in extent.kept)
        if isinstance(task, Language) and on_strings:
            for length in extent.of_strings:
                scores += self._of_strings(on_strings, length, *_strings(task, length, extent.strings, seed, self.device))
        return scores

    def _of_contexts(self, length: int, batches: Iterator[Batch]) -> Iterator[Score]:
        """Scores of contexts of `length`, and of all prefixes for tasks with an answer at every prefix."""
        task, device = self.experiment.task, self.device
        of_answers, of_sequences = (of_source(each, task, self.experiment.measurements) for each in ("contexts", "sequences"))
        rows: dict[tuple[str, str], list[Tensor]] = defaultdict(list)  # each (n, A), or (n, 1) for a number a context
        counted: list[Tensor] = []
        for inputs, distribution, weights in batches:
            inputs, distribution = inputs.to(device), distribution.to(device)
            weights = None if weights is None else weights.to(device)
            counted += [] if weights is None else [weights.double()]
            for variant, predict in self.models.items():
                predictions = Predictions(self.in_parts(predict, inputs), distribution, weights)
                self.finite.add(variant, length, predictions.logits.isfinite().all(-1), weights)
                for measurement in of_answers:
                    rows[variant, measurement.name].append(values_of(measurement, predictions))
                for measurement in of_sequences:
                    rows[variant, measurement.name].append(values_of_sequences(measurement, predictions)[:, None])
        whole = {measurement.name for measurement in of_sequences}
        share = torch.cat(counted) if counted else None
        for (variant, metric), chunks in rows.items():
            values = torch.cat(chunks)
            weights = None if metric in whole else share
            if task.signature.answers is Answers.MARKED:
                # All marked answers are of one length.
                values, weights = values.reshape(-1, 1), None if weights is None else weights.reshape(-1, 1)
            means, counts = _means(values, weights)
            for answered, value, count in zip(answered_lengths(task, length, len(means)), means, counts, strict=True):
                yield Score(variant, metric, answered, value if count else None, count)

    def _of_strings(
        self, measurements: Sequence[Measurement], length: int, inputs: Tensor, is_member: Tensor
    ) -> Iterator[Score]:
        """Scores of whole strings of `length`."""
        for variant, predict in self.models.items():
            taken = self.in_parts(lambda part, predict=predict: step_log_probability(predict(part), part), inputs)  # type: ignore[misc]
            self.finite.add(variant, length, taken.isfinite())
            for measurement in measurements:
                given = StringScores(taken, is_member)
                with unwritten(measurement, given):
                    value = measurement.of_strings(given).item()
                yield Score(variant, measurement.name, length, value, len(inputs))

    def causality_scores(self) -> Iterator[Score]:
        """Share of cuts with an earlier answer changed by later tokens, at the longest length."""
        own = self.experiment
        asked = causality.question(own.task, own.train, own.evaluate, own.seed)
        if asked is None:
            return
        asked = asked.to(self.device)
        for variant, predict in self.models.items():
            found = causality.moved(partial(self.in_parts, predict), asked, causality.TOLERANCES[own.record.precision])
            yield Score(variant, NOT_CAUSAL, asked.length, len(found.cuts) / len(asked.cuts), len(asked.cuts))


def values_of(measurement: Measurement, predictions: Predictions) -> Tensor:
    """Value of each answer, (n, A) float64: `worst` where probabilities or the value are not finite."""
    probability = predictions.probability  # computed before the check, which then sees writes into it
    with unwritten(measurement, predictions):
        values = _of_shape(measurement.of_contexts(predictions), probability.shape[:2], measurement)
    if measurement.partial:
        return values
    worst = torch.nan if measurement.worst is None else measurement.worst
    return values.where(probability.isfinite().all(-1) & values.isfinite(), worst)


def values_of_sequences(measurement: Measurement, predictions: Predictions) -> Tensor:
    """Value of each context, (n,) float64: `worst` where a counted answer or the value is not finite, NaN without any."""
    counts = predictions.counts
    finite = (predictions.probability.isfinite().all(-1) | ~counts).all(-1)
    with unwritten(measurement, predictions):
        values = _of_shape(measurement.of_sequences(predictions), counts.shape[:1], measurement)
    worst = torch.nan if measurement.worst is None else measurement.worst
    return values.where(finite & values.isfinite(), worst).where(counts.any(-1), torch.nan)


def _of_shape(values: Tensor, shape: torch.Size, measurement: Measurement) -> Tensor:
    """Values as float64. Raises PluginError for another shape, which would be broadcast without a word."""
    if values.shape != shape:
        raise PluginError(f"the measurement {measurement.name} gives values {tuple(values.shape)}, expected {tuple(shape)}")
    return values.double()


def _means(values: Tensor, weights: Tensor | None) -> tuple[list[float], list[int]]:
    """Means of the defined values over contexts, (n, A) -> A values, and the number of contexts in each mean."""
    defined = values.isfinite()
    if weights is None:
        return values.where(defined, torch.nan).nanmean(0).tolist(), defined.sum(0).tolist()
    weights = weights * defined
    total = weights.sum(0)
    means = (values.nan_to_num(0) * weights).sum(0) / total
    return means.tolist(), (weights > 0).sum(0).tolist()


def _contexts(task: Task, length: int, n: int, key: tuple[int, int], positions: int, device: torch.device) -> Iterator[Batch]:
    """The n contexts of a key, about `positions` positions at once, or one context."""
    size = max(1, positions // (length + 1))
    for start in range(0, n, size):
        random = Random.stacked([key], min(size, n - start), first=start, device=device_of_data(device))
        yield draw(task, length, random)


def _answering(predict: Predict, device: torch.device) -> Predict:
    """Model on a device, with inputs and logits on the device of the inputs."""
    return lambda inputs: predict(inputs.to(device)).to(inputs.device)


class InParts:
    """Application of functions to many inputs in parts. After a lack of memory, parts stay smaller."""

    def __init__(self, device: torch.device) -> None:
        self.positions = AT_ONCE.get(device.type, DRAWN_POSITIONS)

    def __call__(self, function: Predict, inputs: Tensor) -> Tensor:
        while True:
            size = min(len(inputs), max(1, self.positions // inputs.shape[1]))
            try:
                return torch.cat([function(part) for part in torch.split(inputs, size)])
            except RuntimeError as error:
                if size == 1 or not lacks_memory(error):
                    raise
                self.positions = size // 2 * inputs.shape[1]


def _strings(task: Language, length: int, n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Symbols of n strings, and membership of each string."""
    key = key_of(seed, "evaluate", task.name, "strings", length)
    inputs, is_member = task.strings(length, Random.stacked([key], n, device=device_of_data(device)))
    return inputs.to(device), is_member.to(device)


def step_log_probability(logits: Tensor, inputs: Tensor) -> Tensor:
    """Log probability of each symbol of a string and of its end: (n, L + 1) float64.

    logits (n, L + 1, V), inputs (n, L + 1) with the begin token first. The last class is the end.
    """
    steps = F.pad(inputs[:, 1:], (0, 1), value=logits.shape[-1] - 1)
    return logits.double().log_softmax(-1).gather(-1, steps[..., None]).squeeze(-1)


MIN_CONTEXTS, MAX_CONTEXTS = 128, 1024
SAMPLED_POSITIONS = 2**19
"""Positions of a sample. The number of contexts follows, within the bounds above.

A submission holds baselines from these numbers, and `lgbench submit` computes them again: a change makes all published runs
invalid.
"""


@torch.no_grad()
def context_free_scores(
    task: Task, measurements: Sequence[Measurement], training: Training, evaluation: Evaluation
) -> list[Score]:
    """Context-free baseline in each measurement with a baseline, at each length of the boards and of eval steps.

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
                values = [measurement.context_free(*pair) for pair in ((first, second), (second, first))]
            known = [each for each in values if each is not None]
            if len(known) == 2:
                both = torch.cat(known)
                scores.append(Score(CONTEXT_FREE, measurement.name, length, both.mean().item(), len(both)))
    return scores


def _samples(task: Task, training: Training, evaluation: Evaluation) -> Iterator[tuple[int, Tensor]]:
    """p* of independent answers by length, (answers, V)."""
    earlier = eval_step_lengths(task, training, evaluation) if evaluation.points else []
    lengths = sorted({*board_lengths(task, training, evaluation), *earlier})
    for drawn in context_lengths(task, training, evaluation):
        n = min(MAX_CONTEXTS, max(MIN_CONTEXTS, SAMPLED_POSITIONS // (drawn + 1)))
        key = key_of(0, "chance", task.name, drawn)  # the old name, because it decides published numbers
        # On the CPU, for the same numbers everywhere.
        batches = _contexts(task, drawn, n, key, SAMPLED_POSITIONS, torch.device("cpu"))
        answers = [(p, torch.ones(p.shape[:2]) if counts is None else counts) for _, p, counts in batches]
        distribution, weights = map(torch.cat, zip(*answers, strict=True))
        if task.signature.answers is not Answers.EVERY_PREFIX:
            yield drawn, distribution[weights > 0]
            continue
        for length in lengths:
            position = distribution.shape[1] - 1 - (drawn - length)
            if position >= 0:  # no answer may be due so early
                yield length, distribution[:, position][weights[:, position] > 0]
