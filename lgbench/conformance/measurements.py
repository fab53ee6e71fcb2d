"""Rules of measurements, tried on predictions and strings of known quality and on made-up internals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any, cast, get_args

import torch
from torch import Tensor

from lgbench.conformance.check import (
    NotChecked,
    Outcome,
    Rules,
    expect,
    expect_close,
    expect_kind,
    kind_of,
    no_global_randomness,
    numbers,
)
from lgbench.contracts import (
    Answers,
    AttentionInternals,
    Internals,
    Language,
    Measurement,
    Predictions,
    Reading,
    Signature,
    Source,
    StringScores,
    SublayerInternals,
    Task,
    Tokens,
)
from lgbench.experiment.components import is_probe
from lgbench.measurement.scores import unwritten

CONTEXTS, ANSWERS, CLASSES = 24, 3, 4
STRINGS, SYMBOLS, KEYS = 16, 5, 5
LEAST = 1e-30
"""Probability of an illegal answer in exact predictions, with a finite logarithm."""

Tasks = Sequence[Task]
MEASUREMENTS = Rules[[Measurement, Tasks]]()
"""The tasks are those that are asked about, besides KINDS_OF_TASKS."""


def _any(contract: Any, answers: Answers, name: str) -> Task:
    """Task with a signature, and no contexts."""
    own = {"name": name, "family": name, "version": 1, "train_lengths": (1, 4)}
    own["signature"] = Signature(Tokens(CLASSES), CLASSES, answers)
    # No abstract method is ever called.
    return cast(Task, type("AnyTask", (contract,), dict.fromkeys(contract.__abstractmethods__) | own)())


KINDS_OF_TASKS = (
    _any(Task, Answers.EVERY_PREFIX, "a task with an answer at every prefix"),
    _any(Task, Answers.MARKED, "a task with marked answers"),
    _any(Language, Answers.EVERY_PREFIX, "a language"),
)


def _computed_from(*wanted: Source) -> Callable[[Measurement, Tasks], bool]:
    """Whether a measurement is computed from one of these sources on some task."""

    def applies(measurement: Measurement, tasks: Tasks) -> bool:
        return not _sources(measurement, tasks).isdisjoint(wanted)

    return applies


def _sources(measurement: Measurement, tasks: Tasks) -> set[Source | None]:
    """Sources on all tasks. Empty if a task is refused, which one rule reports."""
    try:
        return {measurement.source(task) for task in (*KINDS_OF_TASKS, *tasks)}
    except Exception:  # a plugin's code may raise anything
        return set()


@MEASUREMENTS.rule("its name, range, worst value, threshold and landmark make sense")
def _describes_itself(measurement: Measurement, tasks: Tasks) -> None:
    low, high = measurement.range
    expect(measurement.version >= 1, f"its version is {measurement.version!r}, expected a number from 1 up")
    for attribute in ("label", "title"):
        expect(bool(getattr(measurement, attribute).strip()), f"its {attribute} is empty: columns and plots show it")
    least, top = -inf if low is None else low, inf if high is None else high
    sound = all(end is None or isfinite(end) for end in (low, high)) and least < top
    expect(sound, f"its range is {measurement.range}, expected the least and the greatest value")
    marks = {"worst value": measurement.worst, "threshold": measurement.threshold}
    marks["landmark"] = measurement.landmark and measurement.landmark[0]
    for what, value in marks.items():
        fits = value is None or (isfinite(value) and least <= value <= top)
        expect(fits, f"its {what} is {value!r}, which is not a number in its range, {measurement.range}")


@MEASUREMENTS.rule("it says for every task what it is computed from")
def _has_sources(measurement: Measurement, tasks: Tasks) -> None:
    found = set()
    for task in (*KINDS_OF_TASKS, *tasks):
        source = measurement.source(task)
        found.add(source)
        on = f"its source on {task.name} is"
        known = source in (*get_args(Source), None)
        expect(known, f"{on} {source!r}, expected {', '.join(get_args(Source))} or None")
        reads = "has" if is_probe(measurement) else "does not have"
        fits = source is None or (source == "internals") == is_probe(measurement)
        expect(fits, f"{on} {source}, and it {reads} of_internals, which probes have and others do not")
        ranks = source in ("internals", None) or None not in (measurement.lower_is_better, measurement.worst)
        expect(ranks, f"{on} {source}: only probes may be without lower_is_better and worst")
        expect(source != "strings" or isinstance(task, Language), f"{on} strings, and only a Language has strings")
        fits = source != "sequences" or task.signature.answers is not Answers.EVERY_PREFIX
        expect(fits, f"{on} sequences, and each of its answers has a length of its own: give None there")
    if found == {None}:
        raise NotChecked("it is defined for no task that is installed")


def exact_distributions(n: int = CONTEXTS) -> Tensor:
    """p* of every kind: one legal answer, two, all, and probabilities of every size. (n, A, V) float32, never all alike."""
    p = numbers(n, ANSWERS, CLASSES, seed=1).mul(2).softmax(-1)
    p[0::4] = torch.eye(CLASSES)[torch.arange(len(p[0::4]) * ANSWERS).view(-1, ANSWERS) % CLASSES]
    p[1::4] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    p[2::4] = 1 / CLASSES
    return p


def predictions(exact: Tensor) -> dict[str, Tensor]:
    """Logits of known quality, the exact ones first."""
    right = exact.clamp(min=LEAST).log()
    return {"exact": right, "uniform": torch.zeros_like(right), "random": 3 * numbers(*right.shape, seed=2), "reversed": -right}


WEIGHTS = (torch.arange(ANSWERS) != torch.arange(CONTEXTS)[:, None] % ANSWERS).float()
"""Weights that leave out one answer of each context, (n, A)."""


def _values(measurement: Measurement, logits: Tensor, exact: Tensor, weights: Tensor | None = None) -> Tensor:
    """Value of each answer, or with weights of each context. Raises PluginError for a write into the predictions."""
    given = Predictions(logits.clone(), exact.clone(), None if weights is None else weights.clone())
    assert given.probability.numel() and given.counts.numel()  # cached, so that a write into them is seen
    with no_global_randomness(), unwritten(measurement, given):
        return measurement.of_contexts(given) if weights is None else measurement.of_sequences(given)


def _ways(measurement: Measurement, tasks: Tasks) -> Iterator[tuple[bool, dict[str, Tensor]]]:
    """Values of every prediction by name, of each answer and of each context as a whole, if computed from them."""
    exact, sources = exact_distributions(), _sources(measurement, tasks)
    for source, weights in (("contexts", None), ("sequences", WEIGHTS)):
        if source in sources:
            found = {name: _values(measurement, logits, exact, weights) for name, logits in predictions(exact).items()}
            yield weights is not None, found


def _mean(values: Tensor) -> float:
    """Mean of the defined values."""
    return values.nanmean().item()


def _sign(measurement: Measurement) -> int:
    return 1 if measurement.lower_is_better else -1


def _within(values: Tensor, measurement: Measurement) -> Tensor:
    """Whether each value is in the range, except for rounding. A NaN is outside."""
    low, high = measurement.range
    return (values >= (-inf if low is None else low - 1e-9)) & (values <= (inf if high is None else high + 1e-9))


OF_PREDICTIONS = _computed_from("contexts", "sequences")


@MEASUREMENTS.rule("each answer or context has a value in its range", when=OF_PREDICTIONS)
def _is_in_range(measurement: Measurement, tasks: Tasks) -> None:
    for whole, found in _ways(measurement, tasks):
        undefined = found["exact"].isnan()
        for name, values in found.items():
            expect_kind("its values are", values, (CONTEXTS,) if whole else (CONTEXTS, ANSWERS), torch.float64)
            missing = values.isnan()
            partial = measurement.partial or not missing.any()
            expect(partial, f"some value of the {name} prediction is NaN: set partial = True if some are undefined")
            expect(torch.equal(missing, undefined), "which answers are undefined depends on the model: p* alone may decide it")
            outside = values[~missing & ~(_within(values, measurement) & values.isfinite())].tolist()
            expect(not outside, f"the {name} prediction has a value outside its range, {measurement.range}: {outside[:1]}")


@MEASUREMENTS.rule("the exact prediction is the best", when=OF_PREDICTIONS)
def _prefers_the_exact(measurement: Measurement, tasks: Tasks) -> None:
    side, sign = "lower" if measurement.lower_is_better else "higher", _sign(measurement)
    for _, found in _ways(measurement, tasks):
        best, *others = means = {name: _mean(values) for name, values in found.items()}
        for name in others:
            better = sign * means[best] <= sign * means[name] + 1e-9
            expect(
                better, f"{side} is better, and the {name} prediction has {means[name]:.4g}, the exact one {means[best]:.4g}"
            )
        distinct = max(means.values()) - min(means.values()) > 1e-9
        expect(distinct, f"every prediction that was tried has the value {means[best]:.4g}: it measures nothing")


@MEASUREMENTS.rule("each answer or context is measured by itself", when=OF_PREDICTIONS)
def _measures_each_alone(measurement: Measurement, tasks: Tasks) -> None:
    exact, sources = exact_distributions(), _sources(measurement, tasks)
    found = predictions(exact)
    logits = found["random"].where(torch.arange(CONTEXTS)[:, None, None] % 2 == 0, found["exact"])
    for source, weights, what in (("contexts", None, "an answer"), ("sequences", WEIGHTS, "a context")):
        if source not in sources:
            continue
        together = _values(measurement, logits, exact, weights)
        for index in range(4):
            own = slice(index, index + 1)
            one = (own,) if weights is not None else (own, slice(1, 2))
            alone = _values(measurement, logits[one], exact[one], None if weights is None else weights[own])
            expect_close(alone, together[one], f"the value of {what} depends on the others beside it", 1e-9)


@MEASUREMENTS.rule("an answer that is not finite has the worst value", when=_computed_from("contexts"))
def _knows_the_worst(measurement: Measurement, tasks: Tasks) -> None:
    exact = exact_distributions()
    undefined = _values(measurement, predictions(exact)["random"], exact).isnan()
    values = _values(measurement, torch.full_like(exact, torch.nan), exact)
    if measurement.partial and measurement.worst is not None:  # else the harness writes the worst value itself
        right = torch.equal(values.isnan(), undefined) and bool((values[~undefined] == measurement.worst).all())
        expect(right, f"a partial measurement itself gives the worst value, {measurement.worst:g}, where the logits are NaN")


@MEASUREMENTS.rule("answers that do not count change nothing", when=_computed_from("sequences"))
def _reads_counted_answers(measurement: Measurement, tasks: Tasks) -> None:
    """Answers with the weight 0, and p* there, are others, or left out."""
    exact, counts = exact_distributions(), WEIGHTS > 0
    remedy = "use `predictions.counts`"
    for name, logits in predictions(exact).items():
        expected = _values(measurement, logits, exact, WEIGHTS)
        other, other_exact = (
            torch.where(counts[..., None], own, another)
            for own, another in ((logits, -logits.flip(-1)), (exact, exact.roll(1, 0)))
        )
        read = f"of the {name} prediction, it reads answers with the weight 0: {remedy}"
        expect_close(_values(measurement, other, other_exact, WEIGHTS), expected, read, 1e-9)
        some_logits, some_exact = (each[counts].view(CONTEXTS, ANSWERS - 1, CLASSES) for each in (logits, exact))
        counted = f"without the answers with the weight 0, the value of the {name} prediction is another: {remedy}"
        found = _values(measurement, some_logits, some_exact, torch.ones(CONTEXTS, ANSWERS - 1))
        expect_close(found, expected, counted, 1e-9)


@MEASUREMENTS.rule("its context-free baseline is that of the best constant prediction", when=_computed_from("contexts"))
def _knows_context_free(measurement: Measurement, tasks: Tasks) -> Outcome:
    exact = exact_distributions(4 * CONTEXTS).reshape(-1, CLASSES)
    pair = exact.clone(), exact.clone()
    with unwritten(measurement, pair):
        values = measurement.context_free(*pair)
    if values is None:
        return "it has no `context_free`: boards show no context-free baseline of it"
    expect_kind("context_free gives", values, exact.shape[:1], torch.float64)
    level, sign = _mean(values), _sign(measurement)
    constants = {
        "uniform distribution": torch.full((CLASSES,), 1 / CLASSES),
        "mean of p*": exact.mean(0),
        "median of p*": exact.median(0).values / exact.median(0).values.sum(),
        **{f"certainty of class {index}": row for index, row in enumerate(torch.eye(CLASSES))},
    }
    for name, constant in constants.items():
        logits = constant.clamp(min=LEAST).log().expand(len(exact), 1, CLASSES)
        other = _mean(_values(measurement, logits, exact[:, None]))
        expect(sign * level <= sign * other + 1e-6, f"its context-free baseline is {level:.4g}, and the {name} has {other:.4g}")
    return None


@MEASUREMENTS.rule("strings whose scores are separated have the best value", when=_computed_from("strings"))
def _prefers_separated_strings(measurement: Measurement, tasks: Tasks) -> None:
    is_member = torch.arange(STRINGS) % 2 == 0
    same = numbers(STRINGS, SYMBOLS + 1, seed=3).double().sigmoid().log()
    unlikely = torch.zeros_like(same)
    unlikely[:, 2] = -40.0
    scores = {
        "separated": same + unlikely * ~is_member[:, None],
        "equal": torch.full_like(same, -1.0),
        "reversed": same + unlikely * is_member[:, None],
        "undefined": torch.full_like(same, torch.nan),
    }
    found = {}
    for name, log_probability in scores.items():
        given = StringScores(log_probability, is_member)
        with no_global_randomness(), unwritten(measurement, given):
            value = measurement.of_strings(given)
        expect(value.ndim == 0, f"of_strings gives {kind_of(value)}, expected a tensor without dimensions")
        found[name] = value.item()
        inside = _within(value, measurement)
        expect(inside, f"{name} strings have the value {found[name]:g}, and its range is {measurement.range}")
    best, sign = found["separated"], _sign(measurement)
    for name in ("equal", "reversed"):
        expect(sign * best < sign * found[name], f"separated strings have {best:.4g}, and {name} ones {found[name]:.4g}")
    worst = measurement.worst
    fits = worst is None or found["undefined"] == worst
    expect(fits, f"strings whose scores are NaN have {found['undefined']:g}, expected the worst value, {worst}")


def _internals() -> Internals:
    """Internals of a model of two layers with attention of two heads, on a task with known sources."""
    weights = numbers(CONTEXTS, 2, KEYS, seed=4).double().softmax(-1)
    stream = numbers(CONTEXTS, 6, seed=5).double()
    return Internals(
        length=KEYS,
        inputs=torch.arange(CONTEXTS * KEYS).view(CONTEXTS, KEYS) % CLASSES,
        logits=3 * numbers(CONTEXTS, CLASSES, seed=7).double(),
        distribution=exact_distributions()[:, 0].double(),
        sources=torch.arange(KEYS).expand(CONTEXTS, KEYS) == torch.arange(CONTEXTS)[:, None] % (KEYS + 1),
        attentions=[AttentionInternals(layer, numbers(CONTEXTS, 2, 3, seed=layer).double(), weights) for layer in (1, 2)],
        sublayers=[
            SublayerInternals(role, layer, stream * layer, stream * layer + 0.5, stream)
            for layer in (1, 2)
            for role in ("attention", "mlp")
        ],
        final=stream,
    )


def _readings(measurement: Measurement, given: Internals) -> list[Reading]:
    """Readings of a probe. Raises PluginError for a write into the internals."""
    with no_global_randomness(), unwritten(measurement, given):
        found = list(measurement.of_internals(given))
    for reading in found:
        expect(isinstance(reading, Reading), f"of_internals gives {type(reading).__name__}, expected lgbench.Reading")
    return found


@MEASUREMENTS.rule("it reads values in its range, of contexts or of all", when=_computed_from("internals"))
def _reads_internals(measurement: Measurement, tasks: Tasks) -> None:
    found = _readings(measurement, _internals())
    if not found:
        raise NotChecked("it reads nothing of a transformer")
    for value, layer, head in found:
        kind = kind_of(value) if isinstance(value, Tensor) else type(value).__name__
        fits = isinstance(value, Tensor) and value.shape in ((), (CONTEXTS,))
        expect(fits, f"the value of a reading is {kind}, expected ({CONTEXTS},), or no dimensions")
        counted = all(number is None or number >= 1 for number in (layer, head)) and not (head and not layer)
        expect(counted, f"a reading is of layer {layer} and head {head}; both count from 1, and a head is that of a layer")
        inside = _within(value[value.isfinite()], measurement)
        expect(inside.all(), f"a reading has a value beyond its range, {measurement.range}")


@MEASUREMENTS.rule("it reads nothing of a model that lacks what it looks at", when=_computed_from("internals"))
def _takes_bare_models(measurement: Measurement, tasks: Tasks) -> None:
    """A recurrent network has no attention and no residual stream; some attentions have no weights; a text has no p*."""
    whole = _internals()
    without_weights = [replace(each, weights=None) for each in whole.attentions]
    for missing in (
        {"attentions": (), "sublayers": (), "sources": None, "final": None},
        {"attentions": without_weights, "sources": None},
        {"distribution": None, "sources": None},
    ):
        _readings(measurement, replace(whole, **missing))
