"""Checks of measurements, on predictions and strings of known quality and on made-up internals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import get_args

import torch
from torch import Tensor

import lgbench.contracts as contracts
from lgbench.conformance.check import Checks, NotChecked, Outcome, expect, expect_close, kind_of, no_global_randomness, numbers
from lgbench.experiment.probes import is_probe
from lgbench.measurement.scores import unwritten
from lgbench.randomness import Random

CONTEXTS, ANSWERS, CLASSES = 24, 3, 4
STRINGS, SYMBOLS, KEYS = 16, 5, 5
LEAST = 1e-30
"""Probability of an illegal answer in exact predictions, with a finite logarithm."""


class AnyTask(contracts.Task):
    """Task with contexts alone."""

    name = family = "any-task"
    version = 1
    signature = contracts.Signature(contracts.Tokens(CLASSES), CLASSES, contracts.Answers.EVERY_PREFIX)
    train_lengths = (1, 4)

    def sample(self, length: int, random: Random) -> contracts.Batch:
        raise NotImplementedError


class AnyMarked(AnyTask):
    """Task with answers at marked positions."""

    name = family = "any-marked"
    signature = contracts.Signature(contracts.Tokens(CLASSES), CLASSES, contracts.Answers.MARKED)


class AnyLanguage(AnyTask, contracts.Language):
    """Task with contexts and strings."""

    name = family = "any-language"

    def strings(self, length: int, random: Random) -> contracts.Strings:
        raise NotImplementedError

    def testable_length(self, length: int) -> int:
        return length


def checks_of_measurement(measurement: contracts.Measurement, tasks: Sequence[contracts.Task]) -> Checks:
    tasks = (AnyTask(), AnyLanguage(), AnyMarked(), *tasks)
    found = {
        "its name, range, worst value, threshold and landmark make sense": lambda: _describes_itself(measurement),
        "it says for every task what it is computed from": lambda: _has_sources(measurement, tasks),
    }
    sources = {_source(measurement, task) for task in tasks}
    if "contexts" in sources:
        found |= {
            "each answer has a value in its range": lambda: _is_in_range(measurement),
            "the exact prediction is the best": lambda: _prefers_the_exact(measurement),
            "each answer is measured by itself": lambda: _measures_each_alone(measurement),
            "an answer that is not finite has the worst value": lambda: _knows_the_worst(measurement),
            "its chance level is that of the best constant prediction": lambda: _knows_chance(measurement),
        }
    if "sequences" in sources:
        found |= {
            "each context has a value in its range": lambda: _is_in_range_of_sequences(measurement),
            "the exact prediction of whole answers is the best": lambda: _prefers_exact_sequences(measurement),
            "answers that do not count change nothing": lambda: _reads_counted_answers(measurement),
        }
    if "strings" in sources:
        found["strings whose scores are separated have the best value"] = lambda: _prefers_separated_strings(measurement)
    if "insides" in sources:
        found |= {
            "it reads values in its range, of contexts or of all": lambda: _reads_internals(measurement),
            "it reads nothing of a model that lacks what it looks at": lambda: _takes_bare_models(measurement),
        }
    return found


def _source(measurement: contracts.Measurement, task: contracts.Task) -> object:
    try:
        return measurement.source(task)
    except Exception:  # one check reports it
        return None


def _describes_itself(measurement: contracts.Measurement) -> Outcome:
    low, high = measurement.range
    expect(measurement.version >= 1, f"its version is {measurement.version!r}, expected a number from 1 up")
    for attribute in ("label", "title"):
        expect(bool(getattr(measurement, attribute).strip()), f"its {attribute} is empty: columns and plots show it")
    least, top = float("-inf") if low is None else low, float("inf") if high is None else high
    sound = all(end is None or isfinite(end) for end in (low, high)) and least < top
    expect(sound, f"its range is {measurement.range}, expected the least and the greatest value")
    marks = {"worst value": measurement.worst, "threshold": measurement.threshold}
    marks["landmark"] = measurement.landmark and measurement.landmark[0]
    for what, value in marks.items():
        fits = value is None or (isfinite(value) and least <= value <= top)
        expect(fits, f"its {what} is {value!r}, which is not a number in its range, {measurement.range}")
    return None


def _has_sources(measurement: contracts.Measurement, tasks: Sequence[contracts.Task]) -> Outcome:
    found = set()
    for task in tasks:
        source = measurement.source(task)
        found.add(source)
        on = f"its source on {task.name} is"
        known = source in (*get_args(contracts.Source), None)
        expect(known, f"{on} {source!r}, expected {', '.join(get_args(contracts.Source))} or None")
        reads = "has" if is_probe(measurement) else "does not have"
        fits = source is None or (source == "insides") == is_probe(measurement)
        expect(fits, f"{on} {source}, and it {reads} of_insides, which probes have and others do not")
        ranks = source in ("insides", None) or None not in (measurement.lower_is_better, measurement.worst)
        expect(ranks, f"{on} {source}: only probes may be without lower_is_better and worst")
        expect(source != "strings" or isinstance(task, contracts.Language), f"{on} strings, and only a Language has strings")
        every = task.signature.answers is contracts.Answers.EVERY_PREFIX
        expect(source != "sequences" or not every, f"{on} sequences, and its answers are to contexts of different lengths")
    if found == {None}:
        raise NotChecked("it is defined for no task that is installed")
    return None


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


def _values(measurement: contracts.Measurement, logits: Tensor, exact: Tensor) -> Tensor:
    """Value of each answer. Raises PluginError for a write into the predictions."""
    given = contracts.Predictions(logits.clone(), exact.clone())
    assert given.probability.numel()  # cached, so that a write into it is seen
    with no_global_randomness(), unwritten(measurement, given):
        return measurement.of_contexts(given)


def _mean(values: Tensor) -> float:
    """Mean of the defined values."""
    return values.nanmean().item()


def _sign(measurement: contracts.Measurement) -> int:
    return 1 if measurement.lower_is_better else -1


def _within(values: Tensor, measurement: contracts.Measurement) -> Tensor:
    """Whether each value is in the range, except for rounding. A NaN is outside."""
    low, high = measurement.range
    above = values >= (float("-inf") if low is None else low - 1e-9)
    return above & (values <= (float("inf") if high is None else high + 1e-9))


def _is_in_range(measurement: contracts.Measurement) -> Outcome:
    exact = exact_distributions()
    undefined: Tensor | None = None
    for name, logits in predictions(exact).items():
        values = _values(measurement, logits, exact)
        fits = values.shape == exact.shape[:2] and values.dtype == torch.float64
        expect(fits, f"its values are {kind_of(values)}, expected {tuple(exact.shape[:2])} float64")
        missing = values.isnan()
        if not measurement.partial:
            expect(not missing.any(), f"some value of a {name} prediction is NaN: set partial = True if some are undefined")
        undefined = missing if undefined is None else undefined
        expect(torch.equal(missing, undefined), "which answers are undefined depends on the model: p* alone may decide it")
        outside = values[~missing & ~(_within(values, measurement) & values.isfinite())].tolist()
        expect(not outside, f"a {name} prediction has a value outside its range, {measurement.range}: {outside[:1]}")
    return None


def _prefers_the_exact(measurement: contracts.Measurement) -> Outcome:
    exact = exact_distributions()
    means = {name: _mean(_values(measurement, logits, exact)) for name, logits in predictions(exact).items()}
    best, sign = means.pop("exact"), _sign(measurement)
    side = "lower" if measurement.lower_is_better else "higher"
    for name, mean in means.items():
        better = sign * best <= sign * mean + 1e-9
        expect(better, f"{side} is better, and a {name} prediction has {mean:.4g}, the exact one {best:.4g}")
    distinct = any(abs(mean - best) > 1e-9 for mean in means.values())
    expect(distinct, f"every prediction that was tried has the value {best:.4g}: it measures nothing")
    return None


def _measures_each_alone(measurement: contracts.Measurement) -> Outcome:
    exact = exact_distributions()
    logits = predictions(exact)["random"]
    together = _values(measurement, logits, exact)
    for index in range(4):
        one = slice(index, index + 1), slice(1, 2)
        alone = _values(measurement, logits[one], exact[one])
        expect_close(alone, together[one], "the value of an answer depends on the answers beside it", 1e-9)
    return None


def _knows_the_worst(measurement: contracts.Measurement) -> Outcome:
    exact = exact_distributions()
    defined = ~_values(measurement, predictions(exact)["random"], exact).isnan()
    values = _values(measurement, torch.full_like(exact, torch.nan), exact)
    if not measurement.partial or measurement.worst is None:
        return None  # the harness writes the worst value itself; another check says that there is none
    right = torch.equal(values.isnan(), ~defined) and set(values[defined].tolist()) <= {measurement.worst}
    expect(right, f"a partial measurement itself gives the worst value, {measurement.worst:g}, where the logits are NaN")
    return None


def _of_sequences(measurement: contracts.Measurement, logits: Tensor, exact: Tensor, weights: Tensor) -> Tensor:
    """Value of each context. Raises PluginError for a write into the predictions."""
    given = contracts.Predictions(logits.clone(), exact.clone(), weights.clone())
    assert given.probability.numel() and given.counts.numel()  # cached, so that a write into them is seen
    with no_global_randomness(), unwritten(measurement, given):
        return measurement.of_sequences(given)


def _some_weights() -> Tensor:
    """Weights that leave out one answer of each context, (n, A)."""
    return (torch.arange(ANSWERS) != torch.arange(CONTEXTS)[:, None] % ANSWERS).float()


def _is_in_range_of_sequences(measurement: contracts.Measurement) -> Outcome:
    exact = exact_distributions()
    for name, logits in predictions(exact).items():
        values = _of_sequences(measurement, logits, exact, _some_weights())
        fits = values.shape == (CONTEXTS,) and values.dtype == torch.float64
        expect(fits, f"its values are {kind_of(values)}, expected ({CONTEXTS},) float64, one for each context")
        outside = values[~(_within(values, measurement) & values.isfinite())].tolist()
        expect(not outside, f"a {name} prediction has a value outside its range, {measurement.range}: {outside[:1]}")
    return None


def _prefers_exact_sequences(measurement: contracts.Measurement) -> Outcome:
    exact, weights, sign = exact_distributions(), _some_weights(), _sign(measurement)
    found = {name: _of_sequences(measurement, logits, exact, weights) for name, logits in predictions(exact).items()}
    best = _mean(found.pop("exact"))
    for name, values in found.items():
        expect(
            sign * best <= sign * _mean(values) + 1e-9, f"a {name} prediction has {_mean(values):.4g}, the exact one {best:.4g}"
        )
    distinct = any(abs(_mean(values) - best) > 1e-9 for values in found.values())
    expect(distinct, f"every prediction that was tried has the value {best:.4g}: it measures nothing")
    return None


def _reads_counted_answers(measurement: contracts.Measurement) -> Outcome:
    """Logits and p* of answers without weight are those of another prediction."""
    exact, weights = exact_distributions(), _some_weights()
    for name, logits in predictions(exact).items():
        other = torch.where(weights[..., None] > 0, logits, -logits.flip(-1))
        expected = _of_sequences(measurement, logits, exact, weights)
        sentence = f"of a {name} prediction, it reads answers with the weight 0: use `predictions.counts`"
        expect_close(_of_sequences(measurement, other, exact, weights), expected, sentence, 1e-9)
    return None


def _knows_chance(measurement: contracts.Measurement) -> Outcome:
    exact = exact_distributions(4 * CONTEXTS).reshape(-1, CLASSES)
    values = measurement.chance(exact.clone(), exact.clone())
    if values is None:
        return "it has no `chance`: boards show no chance level of it"
    fits = values.shape == exact.shape[:1] and values.dtype == torch.float64
    expect(fits, f"chance gives {kind_of(values)}, expected {tuple(exact.shape[:1])} float64")
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
        expect(sign * level <= sign * other + 1e-6, f"its chance level is {level:.4g}, and the {name} has {other:.4g}")
    return None


def _prefers_separated_strings(measurement: contracts.Measurement) -> Outcome:
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
        given = contracts.StringScores(log_probability, is_member)
        with no_global_randomness(), unwritten(measurement, given):
            value = measurement.of_strings(given)
        expect(value.ndim == 0, f"of_strings gives {kind_of(value)}, expected a tensor without dimensions")
        found[name] = value.item()
        inside = bool(_within(value, measurement))
        expect(inside, f"{name} strings have the value {found[name]:g}, and its range is {measurement.range}")
    best, sign = found["separated"], _sign(measurement)
    for name in ("equal", "reversed"):
        expect(sign * best < sign * found[name], f"separated strings have {best:.4g}, and {name} ones {found[name]:.4g}")
    worst = measurement.worst
    fits = worst is None or found["undefined"] == worst
    expect(fits, f"strings whose scores are NaN have {found['undefined']:g}, expected the worst value, {worst}")
    return None


def _internals() -> contracts.Insides:
    """Internals of a model of two layers with attention of two heads, on a task with known sources."""
    weights = numbers(CONTEXTS, 2, KEYS, seed=4).double().softmax(-1)
    stream = numbers(CONTEXTS, 6, seed=5).double()
    return contracts.Insides(
        length=KEYS,
        inputs=torch.arange(CONTEXTS * KEYS).view(CONTEXTS, KEYS) % CLASSES,
        logits=3 * numbers(CONTEXTS, CLASSES, seed=7).double(),
        distribution=exact_distributions()[:, 0].double(),
        sources=torch.arange(KEYS).expand(CONTEXTS, KEYS) == torch.arange(CONTEXTS)[:, None] % (KEYS + 1),
        attentions=[
            contracts.AttentionInside(layer, numbers(CONTEXTS, 2, 3, seed=layer).double(), weights) for layer in (1, 2)
        ],
        sublayers=[
            contracts.SublayerInside(role, layer, stream * layer, stream * layer + 0.5, stream)
            for layer in (1, 2)
            for role in ("attention", "mlp")
        ],
        final=stream,
    )


def _readings(measurement: contracts.Measurement, given: contracts.Insides) -> list[contracts.Reading]:
    """Readings of a probe. Raises PluginError for a write into the internals."""
    with no_global_randomness(), unwritten(measurement, given):
        found = list(measurement.of_insides(given))
    for reading in found:
        expect(isinstance(reading, contracts.Reading), f"of_insides gives {type(reading).__name__}, expected lgbench.Reading")
    return found


def _reads_internals(measurement: contracts.Measurement) -> Outcome:
    found = _readings(measurement, _internals())
    if not found:
        raise NotChecked("it reads nothing of a transformer")
    for value, layer, head in found:
        fits = isinstance(value, Tensor) and value.shape in ((), (CONTEXTS,))
        kind = kind_of(value) if isinstance(value, Tensor) else type(value).__name__
        expect(fits, f"the value of a reading is {kind}, expected ({CONTEXTS},), or no dimensions")
        counted = all(number is None or number >= 1 for number in (layer, head)) and not (head and not layer)
        expect(counted, f"a reading is of layer {layer} and head {head}; both count from 1, and a head is that of a layer")
        inside = _within(value[value.isfinite()], measurement)
        expect(bool(inside.all()), f"a reading has a value beyond its range, {measurement.range}")
    return None


def _takes_bare_models(measurement: contracts.Measurement) -> Outcome:
    """A recurrent network has no attention and no residual stream; some attentions have no weights; a text has no p*."""
    whole = _internals()
    without_weights = [replace(each, weights=None) for each in whole.attentions]
    for missing in (
        {"attentions": (), "sublayers": (), "sources": None, "final": None},
        {"attentions": without_weights, "sources": None},
        {"distribution": None, "sources": None},
    ):
        _readings(measurement, replace(whole, **missing))
    return None
